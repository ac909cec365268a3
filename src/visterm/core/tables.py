"""The tables of models and encoders: every list, message, generated page and contract test is made from them."""

from __future__ import annotations

from typing import Any

from visterm.core.registry import Entry, Registry

WSABIE = "Weston, Bengio, Usunier 2010"
PAMIR = "Grangier, Bengio 2008"
OBJECTS_AND_PARTS = "Mesnil, Bordes, Weston, Chechik, Bengio 2014"
VSE_ENS = "Guo, Zhai, Yuan, Liu, Wang 2018"
CMRM = "Jeon, Lavrenko, Manmatha 2003"
MBRM = "Feng, Manmatha, Lavrenko 2004"
CMTT = "Pan, Yang, Duygulu, Faloutsos 2004"
PLSA = "Monay, Gatica-Perez 2004"
JEC = "Makadia, Pavlovic, Kumar 2008"
TAGPROP = "Guillaumin, Mensink, Verbeek, Schmid 2009"
TWO_PASS_KNN = "Verma, Jawahar 2012"
FASTTAG = "Chen, Zheng, Weinberger 2013"
SAMPLED_TAGGING = "Ni et al., sampled tagging"
FAST0TAG = "Zhang, Gong, Shah 2016"


def _model(name: str, target: str, summary: str, paper: str = "", **more: Any) -> Entry:
    """Return the entry of a class in a file of `visterm.models`."""
    return Entry(name, f"visterm.models.{target}", summary, paper, **more)


def _encoder(name: str, target: str, summary: str, paper: str = "", **more: Any) -> Entry:
    """Return the entry of a class in a file of `visterm.encoders`."""
    return Entry(name, f"visterm.encoders.{target}", summary, paper, **more)


MODELS = Registry(
    "model",
    [
        _model("wsabie", "ranking.wsabie:Wsabie", "joint embedding of images and tags, WARP loss", WSABIE),
        _model("warp_linear", "ranking.warp_linear:WarpLinear", "one linear scorer a tag, WARP loss", WSABIE),
        _model("auc_embedding", "ranking.auc:AucEmbedding", "joint embedding, all places equal", WSABIE),
        _model("owpc_sgd", "ranking.owpc_sgd:OwpcSgd", "joint embedding, WARP's loss with exact ranks", WSABIE),
        _model("pamir", "pamir.pamir:Pamir", "one linear scorer a word, trained on queries of several", PAMIR),
        _model("pamir_ia", "pamir.pamir_ia:PamirIa", "one linear scorer a tag, ranked pair by pair", PAMIR),
        _model("one_vs_rest", "ranking.one_vs_rest:OneVsRest", "one linear classifier a tag, large margin", WSABIE),
        _model("vse_ens", "ranking.vse_ens:VseEns", "joint embedding, negatives drawn adaptively", VSE_ENS),
        _model("opt_auc", "ranking.auc:OptAuc", "joint embedding, logistic loss of drawn pairs", VSE_ENS),
        _model(
            "objects_and_parts",
            "parts.objects_and_parts:ObjectsAndParts",
            "joint embedding that also learns which tag is part of which",
            OBJECTS_AND_PARTS,
        ),
        _model(
            "sampled_tagger",
            "deep.sampled_tagger:SampledTagger",
            "deep network and word vectors, learned together from drawn tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        _model(
            "cross_entropy_tagger",
            "deep.cross_entropy_tagger:CrossEntropyTagger",
            "deep network and word vectors, learned together from all tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        _model(
            "fast0tag",
            "deep.fast0tag:Fast0Tag",
            "deep network whose direction in word space ranks the tags",
            FAST0TAG,
            extra="torch",
        ),
        _model(
            "average_word_vector",
            "deep.averaged_word_vectors:AverageWordVector",
            "deep network taught the mean vector of an image's tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        _model(
            "correlated_word_vectors",
            "deep.averaged_word_vectors:CorrelatedWordVectors",
            "the same mean, of tags that go together most",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        _model("ridge", "linear.ridge:Ridge", "one linear scorer a tag, squared loss"),
        _model(
            "kernel_ridge", "linear.kernel_ridge:KernelRidge", "ridge over a Gaussian kernel: bends where images do"
        ),
        _model("knn", "neighbours.knn:Knn", "tags of the most similar training images, by cosine", WSABIE),
        _model(
            "rp_knn",
            "neighbours.rp_knn:RpKnn",
            "neighbours within a leaf of a random-projection tree: faster than knn, finds fewer",
            WSABIE,
        ),
        _model("jec", "neighbours.jec:Jec", "tags of the nearest images, by several scaled distances", JEC),
        _model(
            "tagprop", "neighbours.tagprop:TagProp", "neighbours vote by learned weights, rare tags lifted", TAGPROP
        ),
        _model(
            "two_pass_knn", "neighbours.two_pass_knn:TwoPassKnn", "each tag's own nearest images vote", TWO_PASS_KNN
        ),
        _model("fasttag", "linear.fasttag:FastTag", "linear scorers of tag lists completed by a map", FASTTAG),
        _model("least_squares", "baselines:LeastSquares", "ridge without its penalty"),
        _model("svm", "linear.svm:Svm", "one SVM a tag, scores comparable for search; to tag: normalise=False", PAMIR),
        _model("cmrm", "generative.cmrm:Cmrm", "tags of training images that would give the same visterms", CMRM),
        _model("mbrm", "generative.mbrm:Mbrm", "tags of training images by the density of their features", MBRM),
        _model("cmtt", "generative.cmtt:Cmtt", "visterms translated into tags, by cosines of their uses", CMTT),
        _model("plsa", "generative.plsa:Plsa", "aspects that explain captions, found again in visterms", PLSA),
        _model("ensemble", "blend.ensemble:Ensemble", "weighted sum of models that you name", WSABIE),
        _model("auto", "blend.auto:Auto", "the best of several models, blended, within a time budget"),
        _model("prior", "baselines:Prior", "the most frequent tags, whatever the image", learns=False),
    ],
    group="visterm.models",
)

ENCODERS = Registry(
    "encoder",
    [
        _encoder("visterms", "visterms:Visterms", "bag of visual words of texture and colour blocks", PAMIR),
        _encoder(
            "histograms",
            "histograms:Histograms",
            "spatial pyramids of colours and textons at several scales",
            OBJECTS_AND_PARTS,
        ),
        _encoder("kernel_pca", "kernel_pca:KernelPca", "kernel PCA of the rows of another encoder", OBJECTS_AND_PARTS),
        _encoder(
            "bag_kernel",
            "bag_kernel:BagKernel",
            "a kernel of the photo's blocks with those of each training photo",
            PAMIR,
        ),
        _encoder("chain", "chain:Chain", "several encoders side by side, their rows scaled"),
        _encoder("onnx", "onnx:Onnx", "an output of any image network in an ONNX file", extra="onnx"),
        _encoder("timm", "timm:Timm", "pooled features of any network of timm", extra="torch"),
        _encoder(
            "open_clip",
            "open_clip:OpenClip",
            "an image tower of open_clip, in one space with words",
            "Radford et al. 2021",
            extra="torch",
        ),
        _encoder(
            "precomputed",
            "precomputed:Precomputed",
            "features made elsewhere, in a NumPy, SciPy, Parquet or svmlight file",
        ),
        _encoder("ids", "ids:Ids", "the number of an image that has no pixels: identity rows", VSE_ENS),
    ],
    group="visterm.encoders",
)
