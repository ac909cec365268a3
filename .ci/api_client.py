"""Search, tag, judge and undo with the client that was generated from the service's description (`.ci/api_client`)."""

import sys
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))

from photo_client import Client
from photo_client.api.annotate import annotate
from photo_client.api.feedback import change_tags, judge, undo_feedback
from photo_client.api.images import image, thumbnail
from photo_client.api.search import search
from photo_client.api.service import health
from photo_client.models import ErrorAnswer, TagsChange, VerdictRequest
from photo_client.types import File

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
assert health.sync(client=client).status == "ok"
photo = search.sync(client=client, limit=1).hits[0].id

changed = change_tags.sync(photo, client=client, body=TagsChange(give=["a new tag"]))
assert "a new tag" in changed.tags, changed
assert image.sync(photo, client=client) == changed
assert search.sync(client=client, tag=["a new tag"]).hits[0].id == photo

judged = judge.sync(photo, client=client, body=VerdictRequest(tag="a new tag", verdict=-1))
assert (judged.verdict, judged.before) == (-1, 0), judged
assert undo_feedback.sync(judged.id, client=client).verdict == 0

picture = thumbnail.sync_detailed(photo, client=client).content
answer = annotate.sync(client=client, body=File(BytesIO(picture), "photo.jpg", "application/octet-stream"), k=1)
assert len(answer.images) == 1, answer

refused = image.sync(10**9, client=client)
assert isinstance(refused, ErrorAnswer), refused
print(f"A generated client searched, tagged, judged and undid, and got the error: {refused.error.message}")
