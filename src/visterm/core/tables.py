"""The tables of models and encoders, from which lists, messages, pages and contract tests are generated."""

from __future__ import annotations

from visterm.core.registry import RESEARCH, Registry, TableEntry

WSABIE = "Weston, Bengio, Usunier 2010"
PAMIR = "Grangier, Bengio 2008"
OBJECTS_AND_PARTS = "Mesnil, Bordes, Weston, Chechik, Bengio 2014"
VSE_ENS = "Guo, Zhai, Yuan, Liu, Wang 2018"
SAMPLED_TAGGING = "Ni et al., sampled tagging"


def _model(name: str, target: str, summary: str, paper: str = "", extra: str = "", learns: bool = True) -> TableEntry:
    """Return the entry of a model; `target` is "module:Class" in `visterm.models`."""
    return TableEntry(name, f"visterm.models.{target}", summary, paper, extra, learns)


def _encoder(name: str, target: str, summary: str, paper: str = "") -> TableEntry:
    """Return the entry of an encoder; `target` is "module:Class" in `visterm.encoders`."""
    return TableEntry(name, f"visterm.encoders.{target}", summary, paper)


def _in_research(name: str, summary: str, paper: str = "", extra: str = "") -> TableEntry:
    """Return the entry of a model or encoder that is an entry point of visterm-research."""
    return TableEntry(name, "", summary, paper, extra, package=RESEARCH)


MODELS = Registry(
    "model",
    [
        _model("wsabie", "ranking.wsabie:Wsabie", "joint embedding of photos and tags, WARP loss", WSABIE),
        _model("pamir", "pamir.pamir:Pamir", "one linear scorer per word, learns from whole queries", PAMIR),
        _model("vse_ens", "ranking.vse_ens:VseEns", "joint embedding, prefers wrong tags that score high", VSE_ENS),
        _model(
            "objects_and_parts",
            "parts.objects_and_parts:ObjectsAndParts",
            "joint embedding that also learns which tag is part of which",
            OBJECTS_AND_PARTS,
        ),
        _model(
            "sampled_tagger",
            "deep.sampled_tagger:SampledTagger",
            "neural network and word vectors, learned from samples of tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        _model("ridge", "linear.ridge:Ridge", "one linear scorer per tag, by least squares"),
        _model("logistic", "linear.logistic:Logistic", "one linear scorer per tag, by logistic regression"),
        _model("mlp", "mlp:Mlp", "neural network with one hidden layer, learned from all tags at once"),
        _model("ease", "linear.ease:Ease", "without features: weights from tag to tag, in closed form"),
        _model(
            "als",
            "linear.als:Als",
            "without features: factors of images and tags, by alternating least squares",
            extra="implicit",
        ),
        _model(
            "text_ridge",
            "linear.text_ridge:TextRidge",
            "ridge that starts from text vectors: zero-shot at first, ridge with many photos",
        ),
        _model("kernel_ridge", "linear.kernel_ridge:KernelRidge", "ridge on a photo's similarities to training photos"),
        _model("knn", "neighbours.knn:Knn", "tags of the most similar training photos", WSABIE),
        _model("ensemble", "blend.ensemble:Ensemble", "weighted sum of models that you name", WSABIE),
        _model("auto", "blend.auto:Auto", "the best of several models, blended, within a time budget"),
        _model("prior", "baselines:Prior", "the most frequent tags, whatever the photo", learns=False),
        _in_research("warp_linear", "one linear scorer per tag, WARP loss", WSABIE),
        _in_research(
            "auc_embedding", "joint embedding, one wrong tag drawn at random, all ranks count the same", WSABIE
        ),
        _in_research("owpc_sgd", "joint embedding, WARP loss with exact ranks", WSABIE),
        _in_research("pamir_ia", "one linear scorer per tag, learns from pairs of tags", PAMIR),
        _in_research("kernel_pamir", "pamir with a kernel: learns from similarities between photos", PAMIR),
        _in_research("one_vs_rest", "one linear yes-or-no classifier per tag", WSABIE),
        _in_research("opt_auc", "joint embedding, one wrong tag drawn at random, smooth loss", VSE_ENS),
        _in_research("rp_knn", "knn with a search tree: faster, but misses some similar photos", WSABIE),
        _in_research("jec", "tags of the most similar photos, by several distances", "Makadia, Pavlovic, Kumar 2008"),
        _in_research(
            "tagprop",
            "similar photos vote by learned weights, rare tags boosted",
            "Guillaumin, Mensink, Verbeek, Schmid 2009",
        ),
        _in_research("two_pass_knn", "for each tag, its most similar photos vote", "Verma, Jawahar 2012"),
        _in_research(
            "cmrm", "tags of training photos, by probability of their visterms", "Jeon, Lavrenko, Manmatha 2003"
        ),
        _in_research(
            "mbrm", "tags of training photos, by probability of their features", "Feng, Manmatha, Lavrenko 2004"
        ),
        _in_research(
            "cmtt", "dictionary from visterms to tags of the same photos", "Pan, Yang, Duygulu, Faloutsos 2004"
        ),
        _in_research("plsa", "topics learned from tags, then recognised by visterms", "Monay, Gatica-Perez 2004"),
        _in_research(
            "cross_entropy_tagger",
            "neural network and word vectors, learned from all tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        _in_research(
            "fast0tag", "neural network that ranks tags by their word vectors", "Zhang, Gong, Shah 2016", extra="torch"
        ),
        _in_research(
            "average_word_vector",
            "neural network that predicts the mean word vector of tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        _in_research(
            "correlated_word_vectors",
            "the same, but only of the tags that fit together best",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        _in_research(
            "fasttag", "linear scorers, learned while missing tags are filled in", "Chen, Zheng, Weinberger 2013"
        ),
        _in_research("least_squares", "ridge without its penalty on large weights"),
        _in_research("svm", "one SVM per tag, made for search; for tagging, set normalise=False", PAMIR),
    ],
    group="visterm.models",
)

ENCODERS = Registry(
    "encoder",
    [
        _encoder("visterms", "visterms:Visterms", "counts of visterms, small patches of texture and colour", PAMIR),
        _encoder("chain", "chain:Chain", "the features of several encoders, one after the other"),
        _encoder("onnx", "onnx:Onnx", "an output of any neural network for images in an ONNX file"),
        _encoder("immich", "immich:Immich", "the vectors of a running machine-learning server of Immich"),
        _encoder("precomputed", "by_name:Precomputed", "features from another program: NumPy, Parquet, svmlight, ..."),
        _encoder("rows", "by_name:FeatureRows", "features in memory: a matrix in Python in place of photos"),
        _encoder("data_set", "by_name:DataSetRows", "the features in a Mulan or svmlight file that also has the tags"),
        _encoder("ids", "by_name:Ids", "only a name or number for each image, no photos", VSE_ENS),
        _in_research("histograms", "counts of colours and textures in parts of the photo", OBJECTS_AND_PARTS),
        _in_research("grouped_visterms", "visterms, faster: only the nearest groups of words are searched", PAMIR),
        _in_research("kernel_pca", "shorter vectors from those of another encoder (kernel PCA)", OBJECTS_AND_PARTS),
        _in_research("bag_kernel", "similarities of a photo's patches to those of each training photo", PAMIR),
        _in_research("timm", "features of any neural network of the package timm", extra="torch"),
        _in_research(
            "open_clip",
            "the image half of a CLIP network of the package open_clip",
            "Radford et al. 2021",
            extra="torch",
        ),
    ],
    group="visterm.encoders",
)
