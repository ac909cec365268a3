"""From a request to the images and tags that are learned: read, cleaned, related; or a plan to stream them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.core.errors import DataError, EncoderMismatchError, NoTagsError, UserError
from visterm.core.progress import Say
from visterm.core.remote import as_path
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.image_folders import check_image_folder
from visterm.data.query_files import QueryRow
from visterm.data.tag_formats.record import TagsRead, likely_paths
from visterm.data.tag_rules import TagRules, prune
from visterm.data.tag_tree import PATHS, TagTree, read_tree, tree_of_paths, tree_summary
from visterm.data.text_files import Reference, count_texts, read_words
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import default_line, registered_name
from visterm.features.contents import is_features
from visterm.features.training_rows import as_corpus, as_images, is_tag_source, named_corpus, not_learned, read_corpus
from visterm.learning.fit_request import FitRequest
from visterm.learning.learned import Learned
from visterm.learning.query_rows import check_learns_queries, query_corpus, query_lines
from visterm.learning.relations import RelationSources, WordRelations, tags_to_learn
from visterm.models.abilities import FitsStreams
from visterm.models.base import Annotator

if TYPE_CHECKING:
    from visterm.features.streaming.memory import Plan


class Cleaning(NamedTuple):
    """What is joined and left out of a dictionary before it is learned."""

    rules: TagRules
    aliases: Mapping[str, str]  # Those of the rules, and paths of the tree with what they are called
    words: list[str]  # Tags even where no image has them
    tree: Sequence[tuple[str, str]] | None = None  # Child and parent of the tags' tree
    paths: bool = False  # Whether tags are paths, which make the tree

    @classmethod
    def read(cls, request: FitRequest) -> Cleaning:
        """Read the rules, words and the tree, before any photo is looked at.

        Raises UserError if tags are left out where queries are learned; DataError if a file cannot be used.
        """
        words = request.words
        words = read_words(words) if isinstance(words, str | os.PathLike) else list(words)
        _check_words(words)
        tree, paths = request.tree, request.tree == PATHS
        if tree is not None and request.queries is not None:
            raise UserError("A tree is of tags, but queries are learned. Leave --tree out.")
        if isinstance(tree, str | os.PathLike):
            tree = None if paths else read_tree(tree)
        if request.rules.prunes and request.queries is not None:
            raise UserError(
                "The tag rules stop_tags, max_share and per_user leave out tags, but queries are learned. Leave them "
                "out."
            )
        return cls(request.rules, request.rules.aliases, words, tree, paths)

    def prune(self, corpus: Corpus, say: Say) -> tuple[Corpus, dict[str, int]]:
        """Return the corpus without what is left out, and the counts to keep with the run."""
        if not self.rules.prunes:
            return corpus, {}
        pruned = prune(corpus, self.rules, self.aliases)
        for remark in pruned.remarks:
            say(remark)
        return pruned.corpus, pruned.facts

    def grow(self, corpus: Corpus, say: Say) -> tuple[Corpus, Cleaning]:
        """Return the corpus with the tags above those of each image, and itself with the tree as pairs."""
        aliases = dict(self.aliases)
        called: Mapping[str, str] = {}
        if self.paths and not corpus.tree:
            of_paths, called = tree_of_paths([*corpus.tags, *corpus.negatives])
            if not of_paths:
                raise DataError(
                    f"--tree {PATHS}: no tag is a path such as 'animals/dog/husky'. Leave --tree out, or pass a table "
                    "of child,parent."
                )
            named_so = {tag_key(path): tag for path, tag in called.items()}
            aliases = {alias: named_so.get(tag_key(tag), tag) for alias, tag in aliases.items()}
            tree = TagTree(of_paths.pairs, aliases)
            aliases = {path: tag for path, tag in called.items() if path not in aliases} | aliases
        elif self.tree is not None or corpus.tree:  # of a table, or of keywords, which are called by their names
            tree = TagTree(corpus.tree if self.tree is None else self.tree, aliases)
            known_keys = {tag_key(tag) for tags in (*corpus.tags, *corpus.negatives) for tag in tags}
            aliases = {path: tag for path, tag in tree.paths().items() if tag_key(path) not in known_keys} | aliases
        else:
            if paths := likely_paths(corpus.tags):
                say(
                    f"{count_of(len(paths), 'tag')} such as '{paths[0]}' may be paths; each is learned as one tag. To "
                    f"learn the tags above, too: --tree {PATHS}."
                )
            return corpus, self
        named = [
            [[called.get(clean_tag(tag), tag) for tag in tags] for tags in lists]
            for lists in (corpus.tags, corpus.negatives)
        ]
        tags, negatives = tree.completed(*named)
        corpus = replace(corpus, tags=tags, negatives=negatives)
        say(tree_summary(tree))
        return corpus, self._replace(aliases=aliases, tree=tree.pairs)

    def relations(self, others: WordRelations | None) -> WordRelations:
        """Return the relations of a run with the tree; without others, what tags lie under is also what they are."""
        others = others or WordRelations()
        if self.tree is None:
            return others
        return others._replace(is_a=others.is_a or self.tree, tree=self.tree)

    def summary(self, used: Mapping[str, str]) -> list[str]:
        """Describe in a line how many aliases are of tags that were learned; nothing where there are none."""
        if not self.aliases:
            return []
        used = {alias: tag for alias, tag in used.items() if alias in self.aliases}  # and not the paths of tags
        unused = [f"{alias} = {tag}" for alias, tag in self.aliases.items() if alias not in used]
        rest = (
            f"; {count_of(len(unused), 'spelling')} (such as '{unused[0]}') of no tag that was learned"
            if unused
            else ""
        )
        n_tags = len(set(used.values()))
        return [f"Aliases: {count_of(len(used), 'spelling')} of {count_of(n_tags, 'tag')}{rest}."]


def _check_words(words: list[str]) -> None:
    """Refuse words that no search could name, and lists in place of words; raises UserError."""
    if negative := next((word for word in words if word.startswith("-")), None):
        raise UserError(f"--words: '{negative}' begins with '-', which means 'not' in searches. Take the '-' off.")
    lists = [word for word in words if "," in word or ";" in word]
    if 2 * len(lists) > len(words):
        raise UserError(
            f"--words: {len(lists):,} of {count_of(len(words), 'line')} look like lists, such as '{lists[0][:60]}'. "
            "Write one word a line."
        )


def one_or_features(images: Any) -> Any:
    """Return the one folder of a list of folders, or several features folders; anything else as it is.

    Raises UserError if one of several is no features folder.
    """
    if not isinstance(images, list | tuple):
        return images
    if len(images) < 2:
        return images[0] if images else None
    other = next((folder for folder in images if not is_features(folder)), None)
    if other is not None:
        raise UserError(
            f"Several folders may be named where all are features, and {other} is no features folder. Pass one folder "
            f"of images, or encode each: visterm encode {other} --encoder RUN -o FEATURES, for example."
        )
    return images


def check_encoder_of_features(images: Any, encoder: str | None) -> None:
    """Refuse an encoder that isn't the one of the features, before its network is looked for."""
    if encoder is None:
        return
    for folder in filter(is_features, images if isinstance(images, list | tuple) else [images]):
        from visterm.features.remote_folder import feature_folder  # which loads pyarrow

        contents = feature_folder(folder).contents()
        if contents is not None and contents.encoder != registered_name(encoder):
            raise EncoderMismatchError(
                f"--encoder {encoder} conflicts with {folder}: these features were made by the encoder "
                f"'{contents.encoder}'. Leave --encoder out, or pass the folder of photos in place of the features."
            )


def plan_streaming(
    images: Any, memory: int | None, say: Say, way: str = "", *, model: Annotator | None = None
) -> Plan | None:
    """Return the memory in bytes for streaming features; None where they are held in memory, or are none.

    `images` are as `one_or_features` returns them: features in several folders are always streamed. `say` takes a line
    for people, `way` how features are streamed, if not in windows. Raises UserError if memory is limited where there
    are no features, or the model cannot stream.
    """
    several = isinstance(images, list | tuple) and bool(images) and all(map(is_features, images))
    if not several and not is_features(images):
        if isinstance(images, str | os.PathLike) and memory is not None:
            check_image_folder(as_path(images))
        if memory is not None:
            raise UserError(
                "--memory is for features on disk, and none are given. Make them with: visterm encode IMAGES -o "
                "FEATURES, and pass FEATURES in place of IMAGES. Features from other programs (--encoder precomputed) "
                "are read into memory: leave --memory out."
            )
        return None
    from visterm.features.streaming.memory import plan_memory
    from visterm.features.streaming.shards import Shards  # which loads pyarrow

    shards = Shards(images)
    plan = plan_memory(shards.n_rows, int(shards.sizes.sum()), memory)
    streamed = plan.streamed or several
    if model is not None and streamed:
        check_streams(model, shards.n_folders)
    if several and not plan.streamed:
        say(f"The features lie in {len(images)} folders: {way or 'streamed from disk'}.")
    elif memory is not None or plan.streamed:
        say(plan.line(way))
    return plan if streamed else None


def check_streams(model: Annotator, n_folders: int = 1) -> None:
    """Refuse a model that cannot learn from windows of rows, as features larger than memory or of several folders do.

    Raises UserError if so; it names those that can.
    """
    if isinstance(model, FitsStreams):
        return
    able = [entry.name for entry in MODELS if not entry.extra and issubclass(MODELS.load(entry.name), FitsStreams)]
    why, otherwise = "do not fit in the memory that may be used", "or allow more (--memory)"
    if n_folders > 1:
        why, otherwise = f"lie in {n_folders} folders, which are streamed", "or encode all photos into one"
    raise UserError(
        f"The features {why}, and the model '{MODELS.name_of(model)}' needs all at once. Choose one that streams them "
        f"(--model {', '.join(able)}), {otherwise}."
    )


class ImagesToLearn(NamedTuple):
    """Images with their tags, cleaned, and all that is known of these before an image is encoded."""

    corpus: Corpus
    encoder: Any  # The one of the run or, of features, the one that made them
    lines: list[QueryRow]
    relations: WordRelations  # Among them the tree
    cleaning: Cleaning  # With the aliases that the tree of these tags brings
    facts: dict[str, Any]  # To keep with the run


def read_to_learn(
    start: Learned, request: FitRequest, cleaning: Cleaning, say: Say, *, any_encoder: bool, related: bool = True
) -> ImagesToLearn:
    """Read the images with their tags, the queries about them, and relations; say what was understood and passed over.

    `start` has the encoder and the model; features may bring another encoder if `any_encoder`. Without `related` no
    relations but the tree are read. Raises UserError if the encoder needs a folder and there is none, or the other way
    round; DataError as `Corpus.read` does, and where most tags look like lists.
    """
    sources, encoder = request.sources(), start.encoder
    if related and not request.learns_tags and (sources.any or request.relations is not None):
        raise UserError(
            "Relations are between tags, and only queries are given. Add --tags, or leave the relations out."
        )
    if request.queries is not None:
        check_learns_queries(start.model)
    corpus, lines = _read_corpus(encoder, request)
    for remark in corpus.remarks:
        say(remark)
    if request.split is not None:
        corpus = corpus.select(request.split)
        corpus = replace(corpus, splits=[None] * len(corpus))
    for line in not_learned(corpus.splits):
        say(line)
    facts = _check_tags(corpus, request, say) if request.learns_tags else {}
    if any_encoder and corpus.encoded is None:
        say(default_line())
    corpus, grown = cleaning.grow(corpus, say)
    corpus, pruned = grown.prune(corpus, say)
    relations = relations_to_learn(start.model, request, sources, corpus, grown.aliases, say) if related else None
    if (before := corpus.encoded) is not None:
        encoder = encoder_of(encoder, before.encoder, before.requested, any_encoder=any_encoder)
    return ImagesToLearn(corpus, encoder, lines, grown.relations(relations), grown, facts | pruned)


def _read_corpus(encoder: AnyEncoder, request: FitRequest) -> tuple[Corpus, list[QueryRow]]:
    """Read a folder of images and its tags, or what stands for them; where words are given, there need be no tags."""
    images: Any = request.images
    tags: Any = "auto" if request.tags is None else request.tags
    lines = [] if request.queries is None else query_lines(encoder, request.queries)
    if not request.learns_tags:
        return query_corpus(encoder, images, lines)
    if isinstance(images, Corpus):
        return images, lines
    if not (isinstance(images, str | os.PathLike | None) and is_tag_source(tags)):
        named = named_corpus(encoder, tags) if images is None else as_corpus(images, tags, **request.rules.columns())
        return named, lines
    try:
        return read_corpus(encoder, images, tags, **request.rules.columns()), lines
    except NoTagsError:
        if not request.words:
            raise
    if images is not None and is_features(images):
        from visterm.features.stored import Features

        corpus = Features(images).corpus()
    else:
        names, items = as_images(images)
        corpus = Corpus.of(items, names, [[] for _ in names])
    remark = "No photo has a tag: the words of --words are found by their vectors alone."
    return replace(corpus, remarks=[remark]), lines


def _check_tags(corpus: Corpus, request: FitRequest, say: Say) -> dict[str, Any]:
    """Refuse tags that look like lists, tell which were read, and return what to keep with the run."""
    tags_read = TagsRead.in_lists(corpus.tags, paths=request.tree is not None)
    if tags_read.n_tags or not request.words:
        say(tags_read.line())
    tags_read.check(request.rules.separator, in_file=isinstance(request.tags, str | os.PathLike))
    return tags_read.facts()


def relations_to_learn(
    model: Annotator,
    request: FitRequest,
    sources: RelationSources,
    corpus: Corpus,
    aliases: Mapping[str, str] | None,
    say: Say,
) -> WordRelations | None:
    """Return the relations among the tags to learn, and say how many there are and whether the model uses them."""
    relations, takes_parts = request.relations, "part_of" in model.takes
    if relations is not None and not isinstance(relations, WordRelations):
        raise UserError(
            f"relations is of type {type(relations).__name__}; expected WordRelations, such as "
            "WordRelations.read(vocabulary, part_of=FILE) or WordRelations([(part, whole), ...])."
        )
    if takes_parts and model.part_of is not None and (sources.part_of is not None or (relations and relations.part_of)):
        raise UserError(
            "The part-of relations are given twice: by the tag rule part_of and by --set part_of. Leave one out."
        )
    if relations is not None:
        return relations
    if sources.part_of is None and takes_parts and model.part_of is None:
        say(
            f"The model '{MODELS.name_of(model)}' is given no relations (the tag rule part_of): without them it trains "
            "like wsabie."
        )
    if not sources.any:
        return None
    vocabulary = tags_to_learn(corpus, request.min_count, aliases)
    if (relations := sources.read(vocabulary)) is not None:
        say(f"Relations: {relations.summary(vocabulary)}")
    if sources.part_of is not None and not takes_parts:
        say(
            f"The model '{MODELS.name_of(model)}' learns nothing from part-of relations; they are kept for visterm "
            "search --expand."
        )
    return relations


def encoder_of(encoder: AnyEncoder, fitted: AnyEncoder, requested: str, *, any_encoder: bool) -> AnyEncoder:
    """Return the fitted encoder of features, in place of the one to fit, if that is the same or any will do.

    `requested` is the fingerprint that the encoder of the features had before it was fitted. Raises
    EncoderMismatchError if they were made by another one.
    """
    if not any_encoder and encoder.fingerprint not in (requested, fitted.fingerprint):
        raise EncoderMismatchError(
            f"The features were made by the encoder '{ENCODERS.name_of(fitted)}', but "
            f"'{ENCODERS.name_of(encoder)}' is asked for, or other settings of it. Leave the encoder and its "
            "settings out (--encoder, --encoder-set): the features keep their own."
        )
    return fitted


def reference_of(texts: str | os.PathLike[str] | None, encoder: AnyEncoder, vocabulary: Vocabulary) -> Reference | None:
    """Return the reference corpus that words are weighed by; None: by the training images."""
    if texts is None:
        return None
    if encoder.by_number:
        raise UserError(
            f"Images known by number (--encoder {ENCODERS.name_of(encoder)}) are not searched by words, so "
            "no words are weighed. Leave the reference corpus out."
        )
    return count_texts(texts, vocabulary)
