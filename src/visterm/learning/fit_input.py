"""Read, clean and relate the images and tags of a fit request, or plan to stream them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from visterm.core.errors import DataError, EncoderMismatchError, NoTagsError, UserError
from visterm.core.progress import Say
from visterm.core.remote import as_path
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.data.image_folders import check_image_folder
from visterm.data.relations import TREE_FILE, read_related
from visterm.data.tag_formats.record import TagCounts, likely_paths
from visterm.data.tag_queries import QueryRow
from visterm.data.tag_rules import TagRules, prune
from visterm.data.tag_tree import PATHS, TagTree, tree_of_paths, tree_summary
from visterm.data.text_files import Reference, count_texts, read_words
from visterm.encoders.by_name import FeatureRows, is_row
from visterm.encoders.contract import AnyEncoder
from visterm.encoders.named import encoder_line
from visterm.features.folder import is_features
from visterm.features.stored import Features
from visterm.features.streaming.memory import Plan, plan_memory
from visterm.features.streaming.shards import Shards
from visterm.features.training_rows import as_images, read_corpus, unused_rows_remark
from visterm.learning.fit_request import FitRequest
from visterm.learning.learned import Learned
from visterm.learning.query_rows import query_corpus, query_lines
from visterm.learning.relations import WordRelations, check_sources, tags_to_learn
from visterm.models.abilities import FitsStreams
from visterm.models.base import Annotator


class Cleaning(NamedTuple):
    """How to clean tags before a fit: rules, aliases, additional words and the tree."""

    rules: TagRules
    aliases: Mapping[str, str]  # Aliases of the rules, and paths of the tree with their tags
    words: list[str]  # Words that become tags even if no image has them
    tree: Sequence[tuple[str, str]] | None = None  # Child and parent of the tags' tree
    paths: bool = False  # Whether tags are paths, from which the tree is built

    @classmethod
    def read(cls, request: FitRequest) -> Cleaning:
        """Read the rules, the words and the tree, before any photo is read.

        Raises UserError if a word is not a single word or phrase, or an option for tags is given for a fit on queries;
        DataError if a file is invalid.
        """
        words = request.words
        words = read_words(words) if isinstance(words, str | os.PathLike) else list(words)
        if negative := next((word for word in words if word.startswith("-")), None):
            raise UserError(
                f"The word '{negative}' begins with '-', which means 'not' in searches.",
                setting="words", value=negative, advice="Remove the '-'.",
            )  # fmt: skip

        lists = [word for word in words if "," in word or ";" in word]
        if 2 * len(lists) > len(words):
            raise UserError(
                f"{len(lists):,} of {count_of(len(words), 'line')} of words look like lists, such as "
                f"'{lists[0][:60]}'.",
                setting="words", value=lists[0], expected="one word or phrase per line",
            )  # fmt: skip

        rules, tree, paths = request.rules, request.tree, request.tree == PATHS
        if request.queries is not None:
            tag_options: dict[str, object] = {
                "word_vectors": request.word_vectors, "words": words or None, "tree": tree,
                "tag_rules": request.tag_rules if rules.prunes else None,
            }  # fmt: skip
            for setting, value in tag_options.items():
                if value is not None:
                    rule_names = " with stop_tags, max_share or per_user" * (setting == "tag_rules")
                    raise UserError(
                        f"`{setting}`{rule_names} is for learning tags, but queries are learned.",
                        setting=setting, value=value, advice="Leave it out.",
                    )  # fmt: skip
        if isinstance(tree, str | os.PathLike):
            tree = None if paths else read_related(tree, TREE_FILE)
        return cls(rules, rules.aliases, words, tree, paths)

    def with_synonyms(self, corpus: Corpus) -> Cleaning:
        """Return this cleaning with the synonyms that came with the tags, except those that are tags themselves."""
        if not corpus.aliases:
            return self
        known = {tag_key(tag) for tags in (*corpus.tags, *corpus.negatives) for tag in tags}
        synonyms = {alias: tag for alias, tag in corpus.aliases.items() if tag_key(alias) not in known}
        return self._replace(aliases=synonyms | dict(self.aliases))

    def with_ancestors(self, corpus: Corpus, say: Say) -> tuple[Corpus, Cleaning]:
        """Add the ancestors of each image's tags; return the corpus, and this cleaning with the tree as pairs."""
        aliases = dict(self.aliases)
        tag_of_path: Mapping[str, str] = {}
        if self.paths and not corpus.tree:
            path_tree, tag_of_path = tree_of_paths([*corpus.tags, *corpus.negatives])
            if not path_tree:
                raise DataError(
                    "No tag is a path such as 'animals/dog/husky'.",
                    setting="tree", value=PATHS, advice="Leave `tree` out, or pass a table of child,parent.",
                )  # fmt: skip
            tag_of_key = {tag_key(path): tag for path, tag in tag_of_path.items()}
            aliases = {alias: tag_of_key.get(tag_key(tag), tag) for alias, tag in aliases.items()}
            tree = TagTree(path_tree.pairs, aliases)
            aliases = {path: tag for path, tag in tag_of_path.items() if path not in aliases} | aliases
        elif self.tree is not None or corpus.tree:  # from a table, or from hierarchical keywords
            tree = TagTree(corpus.tree if self.tree is None else self.tree, aliases)
            known_keys = {tag_key(tag) for tags in (*corpus.tags, *corpus.negatives) for tag in tags}
            aliases = {path: tag for path, tag in tree.paths().items() if tag_key(path) not in known_keys} | aliases
        else:
            if paths := likely_paths(corpus.tags):
                say(
                    f"{count_of(len(paths), 'tag')} such as '{paths[0]}' may be paths; each is learned as one tag. To "
                    f"learn the tags above, too, say that the tree of the tags is in their {PATHS}."
                )
            return corpus, self

        renamed_lists = [
            [[tag_of_path.get(clean_tag(tag), tag) for tag in tags] for tags in lists]
            for lists in (corpus.tags, corpus.negatives)
        ]
        tags, negatives = tree.completed(*renamed_lists)
        corpus = replace(corpus, tags=tags, negatives=negatives)
        say(tree_summary(tree))
        return corpus, self._replace(aliases=aliases, tree=tree.pairs)

    def summary(self, used: Mapping[str, str]) -> list[str]:
        """Return a line about how many aliases belong to learned tags; an empty list if there are no aliases."""
        if not self.aliases:
            return []

        used = {alias: tag for alias, tag in used.items() if alias in self.aliases}  # without the paths of tags
        unused = [f"{alias} = {tag}" for alias, tag in self.aliases.items() if alias not in used]
        rest = f"; {count_of(len(unused), 'spelling')} (such as '{unused[0]}') without a learned tag" if unused else ""
        n_tags = len(set(used.values()))
        return [f"Aliases: {count_of(len(used), 'spelling')} of {count_of(n_tags, 'tag')}{rest}."]


def single_or_features(images: Any) -> Any:
    """Return the only item of a list; return a list of features folders, and other values, unchanged.

    Raises UserError if one of several items is not a features folder.
    """
    if not isinstance(images, list | tuple):
        return images
    if len(images) < 2:
        return images[0] if images else None
    non_features = next((folder for folder in images if not is_features(folder)), None)
    if non_features is not None:
        raise UserError(
            f"Several folders can only be features folders, and {non_features} is not a features folder.",
            setting="images", value=non_features,
            advice="Pass one folder of images, or encode each: visterm encode PHOTOS --encoder RUN -o FEATURES",
        )  # fmt: skip
    return images


def plan_streaming(
    images: Any, memory: int | None, say: Say, way: str = "", *, model: Annotator | None = None
) -> Plan | None:
    """Return the plan for streaming features from disk; None if they fit in memory, or if `images` are not features.

    `images` are as `single_or_features` returns them; features in several folders are always streamed. `say` is called
    with a line for people, and `way` describes in that line how features are streamed. Raises UserError if `memory` is
    set without features, or the model cannot stream.
    """
    are_in_several_folders = isinstance(images, list | tuple)
    folders = images if are_in_several_folders else [images]
    if not folders or not all(map(is_features, folders)):
        if memory is None:
            return None
        if isinstance(images, str | os.PathLike):
            check_image_folder(as_path(images))
        raise UserError(
            "`memory` is for features on disk, but `images` are not features.",
            setting="memory", value=memory,
            advice="Make them with: visterm encode IMAGES -o FEATURES, and pass FEATURES in place of IMAGES. Features "
            "from other programs (the encoder precomputed) are read into memory: leave `memory` out.",
        )  # fmt: skip

    shards = Shards(images)
    plan = plan_memory(shards.n_rows, int(shards.sizes.sum()), memory)
    streamed = plan.needed > plan.memory or are_in_several_folders
    if model is not None and streamed:
        check_streams(model, shards.n_folders)
    if are_in_several_folders and plan.needed <= plan.memory:
        say(f"The features are in {len(folders)} folders: {way or 'streamed from disk'}.")
    elif memory is not None or streamed:
        say(plan.line(way))
    return plan if streamed else None


def check_streams(model: Annotator, n_folders: int = 1) -> None:
    """Check that a model can learn from windows of rows, for features larger than memory or in several folders.

    Raises UserError, which lists the models that can, if the model cannot.
    """
    if isinstance(model, FitsStreams):
        return
    able = [entry.name for entry in MODELS if not entry.extra and issubclass(MODELS.load(entry.name), FitsStreams)]
    problem, fix = "do not fit in the memory that may be used", "or allow more `memory`"
    if n_folders > 1:
        problem, fix = f"are in {n_folders} folders, which are streamed", "or encode all photos into one"
    name = MODELS.name_of(model)
    raise UserError(
        f"The features {problem}, and the model '{name}' needs all in memory.",
        setting="model", value=name, advice=f"Choose a `model` that streams them ({', '.join(able)}), {fix}.",
    )  # fmt: skip


def read_images(encoder: AnyEncoder, request: FitRequest) -> tuple[Corpus, list[QueryRow]]:
    """Read images with their tags, and the queries about them; with `words`, images without any tag are allowed.

    Raises UserError if the encoder needs a folder and there is none, or the reverse; DataError like `Corpus.read`.
    """
    images, tags = request.images, "auto" if request.tags is None else request.tags
    lines = [] if request.queries is None else query_lines(encoder, request.queries)
    if not request.learns_tags:
        return query_corpus(encoder, images, lines)
    try:
        return read_corpus(encoder, images, tags, **request.rules.columns()).known_only(), lines
    except NoTagsError:
        if not request.words:
            raise

    if isinstance(images, str | os.PathLike) and is_features(images):
        corpus = Features(images).corpus()
    else:
        names, items = as_images(images)
        corpus = Corpus.of(items, names, [[] for _ in names])
    return replace(corpus, remarks=["No photo has a tag: words are found by their vectors alone."]), lines


class ImagesToLearn(NamedTuple):
    """Images with their cleaned tags, and the other results of reading a request, before images are encoded."""

    corpus: Corpus
    encoder: AnyEncoder  # The encoder of the run or, for features, the encoder that made them
    relations: WordRelations  # Including the tree
    cleaning: Cleaning  # Including the aliases from the tree of the tags
    facts: dict[str, object]  # Facts to save with the run


def clean_images(
    start: Learned,
    request: FitRequest,
    cleaning: Cleaning,
    corpus: Corpus,
    say: Say,
    *,
    any_encoder: bool,
    with_relations: bool = True,
) -> ImagesToLearn:
    """Select, check, clean and relate the images and tags of a corpus; report what was understood and left out.

    `start` has the encoder and the model; with `any_encoder`, features may replace the encoder. Without
    `with_relations`, only the tree is read. Raises DataError if most tags look like lists, or no tag remains.
    """
    for remark in (*corpus.remarks, *(unused_rows_remark(corpus.splits) if request.split is None else [])):
        say(remark)
    if request.split is not None:
        corpus = corpus.select(request.split)
        corpus = replace(corpus, splits=[None] * len(corpus))

    facts: dict[str, object] = {}
    if request.learns_tags:
        tags_read = TagCounts.in_lists(corpus.tags, paths=request.tree is not None)
        if tags_read.n_tags or not request.words:
            say(tags_read.line())
        tags_read.check(request.rules.separator)
        facts |= tags_read.facts()
    are_rows = is_row(corpus.images[0]) if corpus.images else False
    line = encoder_line(None if any_encoder else start.encoder) if corpus.encoded is None and not are_rows else None
    if line is not None:
        say(line)

    corpus, full_cleaning = cleaning.with_synonyms(corpus).with_ancestors(corpus, say)
    if full_cleaning.rules.prunes:
        pruned = prune(corpus, full_cleaning.rules, full_cleaning.aliases)
        corpus, facts = pruned.corpus, facts | pruned.facts
        for remark in pruned.remarks:
            say(remark)

    relations = _relations(start.model, request, corpus, full_cleaning, say, with_relations=with_relations)
    encoder, encoded = start.encoder, corpus.encoded
    if encoded is not None:
        encoder = encoder_of(encoder, encoded.encoder, encoded.requested, any_encoder=any_encoder)
    elif are_rows and any_encoder:
        encoder = FeatureRows()
    return ImagesToLearn(corpus, encoder, relations, full_cleaning, facts)


def _relations(
    model: Annotator, request: FitRequest, corpus: Corpus, cleaning: Cleaning, say: Say, *, with_relations: bool
) -> WordRelations:
    """Return the relations between tags, from the request or from the tag rules, together with the tree.

    Report how many relations the rules have, and whether the model uses them.
    """
    rules, relations = request.rules, request.relations or WordRelations()
    name, takes_parts = MODELS.name_of(model), "part_of" in model.takes
    if with_relations and request.relations is None:
        if rules.part_of is None and takes_parts and model.part_of is None:
            say(f"The model '{name}' has no relations (the tag rule part_of): without them it trains like wsabie.")
        if rules.part_of is not None or rules.isa is not None:
            vocabulary = tags_to_learn(corpus, request.min_count, cleaning.aliases)
            relations = WordRelations.read(vocabulary, part_of=rules.part_of, is_a=rules.isa)
            say(f"Relations: {relations.summary(vocabulary)}")
        if rules.part_of is not None and not takes_parts:
            say(
                f"The model '{name}' learns nothing from part-of relations; they are kept for searches that expand "
                "their words by parts."
            )
    if cleaning.tree is not None:  # parents in the tree are also is-a relations
        relations = relations._replace(is_a=relations.is_a or cleaning.tree, tree=cleaning.tree)
    return relations


def check_relations(model: Annotator, request: FitRequest) -> None:
    """Check the relations of a request before any image is read.

    Raises UserError if they are invalid, given twice, or no tags are learned; DataError if a file is missing.
    """
    rules, relations = request.rules, request.relations
    check_sources(rules)
    rules_have_relations = rules.part_of is not None or rules.isa is not None
    if relations is None and not rules_have_relations:
        return

    if not request.learns_tags:
        raise UserError(
            "Relations are between tags, but only queries are given.",
            setting="relations" if relations is not None else "tag_rules", value=relations or request.tag_rules,
            advice="Add `tags`, or leave the relations out.",
        )  # fmt: skip

    if relations is not None and not isinstance(relations, WordRelations):
        raise UserError(
            f"`relations` is of type {type(relations).__name__}", setting="relations", value=relations,
            expected="WordRelations, such as WordRelations.read(vocabulary, part_of=FILE) or "
            "WordRelations([(part, whole), ...])",
        )  # fmt: skip
    has_parts = rules.part_of is not None or (relations is not None and relations.part_of)
    sets_parts = "part_of" in model.takes and model.part_of is not None and bool(has_parts)
    if sets_parts or (relations is not None and rules_have_relations):
        first = "model.part_of" if sets_parts else "relations"
        raise UserError(
            f"The relations are given twice: by `{first}`, and by tag rules{' or `relations`' * sets_parts}.",
            setting=first, value=model.part_of if sets_parts else relations, advice="Leave one out.",
        )  # fmt: skip


def encoder_of(encoder: AnyEncoder, fitted: AnyEncoder, requested: str, *, any_encoder: bool) -> AnyEncoder:
    """Return `fitted`, the encoder of features, if it matches the requested `encoder` or `any_encoder` is set.

    `requested` is the fingerprint of the features' encoder before it was fitted. Raises EncoderMismatchError if the
    features were made by another encoder.
    """
    if not any_encoder and encoder.fingerprint not in (requested, fitted.fingerprint):
        name = ENCODERS.name_of(encoder)
        raise EncoderMismatchError(
            f"The features were made by the encoder '{ENCODERS.name_of(fitted)}', but '{name}' or other settings are "
            "requested.",
            setting="encoder", value=name,
            advice="Leave `encoder` and its settings out: the encoder of the features is used.",
        )  # fmt: skip
    return fitted


def reference_of(texts: str | os.PathLike[str], encoder: AnyEncoder, vocabulary: Vocabulary) -> Reference:
    """Read the reference corpus, which weighs words.

    Raises UserError if images are known by number, and not searched by words; TagFileError like `count_texts`.
    """
    if encoder.by_number:
        raise UserError(
            f"Images known by number (the encoder {ENCODERS.name_of(encoder)}) are not searched by words, so no words "
            "are weighed.",
            setting="idf", value=texts, advice="Leave `idf` out.",
        )  # fmt: skip
    return count_texts(texts, vocabulary)
