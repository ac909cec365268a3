"""The tables of models and encoders: every list, message, generated page and contract test is made from them."""

from __future__ import annotations

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

MODELS = Registry(
    "model",
    [
        Entry(
            "wsabie", "visterm.models.ranking.wsabie:Wsabie", "joint embedding of images and tags, WARP loss", WSABIE
        ),
        Entry(
            "warp_linear", "visterm.models.ranking.warp_linear:WarpLinear", "one linear scorer a tag, WARP loss", WSABIE
        ),
        Entry("auc_embedding", "visterm.models.ranking.auc:AucEmbedding", "joint embedding, all places equal", WSABIE),
        Entry(
            "owpc_sgd",
            "visterm.models.ranking.owpc_sgd:OwpcSgd",
            "joint embedding, WARP's loss with exact ranks",
            WSABIE,
        ),
        Entry(
            "pamir",
            "visterm.models.pamir.pamir:Pamir",
            "one linear scorer a word, trained on queries of several",
            PAMIR,
        ),
        Entry(
            "pamir_ia", "visterm.models.pamir.pamir_ia:PamirIa", "one linear scorer a tag, ranked pair by pair", PAMIR
        ),
        Entry(
            "one_vs_rest",
            "visterm.models.ranking.one_vs_rest:OneVsRest",
            "one linear classifier a tag, large margin",
            WSABIE,
        ),
        Entry(
            "vse_ens", "visterm.models.ranking.vse_ens:VseEns", "joint embedding, negatives drawn adaptively", VSE_ENS
        ),
        Entry("opt_auc", "visterm.models.ranking.auc:OptAuc", "joint embedding, logistic loss of drawn pairs", VSE_ENS),
        Entry(
            "objects_and_parts",
            "visterm.models.parts.objects_and_parts:ObjectsAndParts",
            "joint embedding that also learns which tag is part of which",
            OBJECTS_AND_PARTS,
        ),
        Entry(
            "sampled_tagger",
            "visterm.models.deep.sampled_tagger:SampledTagger",
            "deep network and word vectors, learned together from drawn tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        Entry(
            "cross_entropy_tagger",
            "visterm.models.deep.cross_entropy_tagger:CrossEntropyTagger",
            "deep network and word vectors, learned together from all tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        Entry(
            "fast0tag",
            "visterm.models.deep.fast0tag:Fast0Tag",
            "deep network whose direction in word space ranks the tags",
            FAST0TAG,
            extra="torch",
        ),
        Entry(
            "average_word_vector",
            "visterm.models.deep.averaged_word_vectors:AverageWordVector",
            "deep network taught the mean vector of an image's tags",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        Entry(
            "correlated_word_vectors",
            "visterm.models.deep.averaged_word_vectors:CorrelatedWordVectors",
            "the same mean, of tags that go together most",
            SAMPLED_TAGGING,
            extra="torch",
        ),
        Entry("ridge", "visterm.models.linear.ridge:Ridge", "one linear scorer a tag, squared loss"),
        Entry(
            "kernel_ridge",
            "visterm.models.linear.kernel_ridge:KernelRidge",
            "ridge over a Gaussian kernel: bends where images do",
        ),
        Entry(
            "knn", "visterm.models.neighbours.knn:Knn", "tags of the most similar training images, by cosine", WSABIE
        ),
        Entry(
            "rp_knn",
            "visterm.models.neighbours.rp_knn:RpKnn",
            "neighbours within a leaf of a random-projection tree: faster than knn, finds fewer",
            WSABIE,
        ),
        Entry(
            "jec", "visterm.models.neighbours.jec:Jec", "tags of the nearest images, by several scaled distances", JEC
        ),
        Entry(
            "tagprop",
            "visterm.models.neighbours.tagprop:TagProp",
            "neighbours vote by learned weights, rare tags lifted",
            TAGPROP,
        ),
        Entry(
            "two_pass_knn",
            "visterm.models.neighbours.two_pass_knn:TwoPassKnn",
            "each tag's own nearest images vote",
            TWO_PASS_KNN,
        ),
        Entry(
            "fasttag",
            "visterm.models.linear.fasttag:FastTag",
            "linear scorers of tag lists completed by a map",
            FASTTAG,
        ),
        Entry("least_squares", "visterm.models.baselines:LeastSquares", "ridge without its penalty"),
        Entry(
            "svm",
            "visterm.models.linear.svm:Svm",
            "one SVM a tag, scores comparable for search; to tag: normalise=False",
            PAMIR,
        ),
        Entry(
            "cmrm",
            "visterm.models.generative.cmrm:Cmrm",
            "tags of training images that would give the same visterms",
            CMRM,
        ),
        Entry(
            "mbrm",
            "visterm.models.generative.mbrm:Mbrm",
            "tags of training images by the density of their features",
            MBRM,
        ),
        Entry(
            "cmtt",
            "visterm.models.generative.cmtt:Cmtt",
            "visterms translated into tags, by cosines of their uses",
            CMTT,
        ),
        Entry(
            "plsa",
            "visterm.models.generative.plsa:Plsa",
            "aspects that explain captions, found again in visterms",
            PLSA,
        ),
        Entry("ensemble", "visterm.models.blend.ensemble:Ensemble", "weighted sum of models that you name", WSABIE),
        Entry("auto", "visterm.models.blend.auto:Auto", "the best of several models, blended, within a time budget"),
        Entry("prior", "visterm.models.baselines:Prior", "the most frequent tags, whatever the image", learns=False),
    ],
    group="visterm.models",
)

ENCODERS = Registry(
    "encoder",
    [
        Entry(
            "visterms", "visterm.encoders.visterms:Visterms", "bag of visual words of texture and colour blocks", PAMIR
        ),
        Entry(
            "histograms",
            "visterm.encoders.histograms:Histograms",
            "spatial pyramids of colours and textons at several scales",
            OBJECTS_AND_PARTS,
        ),
        Entry(
            "kernel_pca",
            "visterm.encoders.kernel_pca:KernelPca",
            "kernel PCA of the rows of another encoder",
            OBJECTS_AND_PARTS,
        ),
        Entry(
            "bag_kernel",
            "visterm.encoders.bag_kernel:BagKernel",
            "a kernel of the photo's blocks with those of each training photo",
            PAMIR,
        ),
        Entry("chain", "visterm.encoders.chain:Chain", "several encoders side by side, their rows scaled"),
        Entry("onnx", "visterm.encoders.onnx:Onnx", "an output of any image network in an ONNX file", extra="onnx"),
        Entry("timm", "visterm.encoders.timm:Timm", "pooled features of any network of timm", extra="torch"),
        Entry(
            "open_clip",
            "visterm.encoders.open_clip:OpenClip",
            "an image tower of open_clip, in one space with words",
            "Radford et al. 2021",
            extra="torch",
        ),
        Entry(
            "precomputed",
            "visterm.encoders.precomputed:Precomputed",
            "features made elsewhere, in a NumPy, SciPy, Parquet or svmlight file",
        ),
        Entry("ids", "visterm.encoders.ids:Ids", "the number of an image that has no pixels: identity rows", VSE_ENS),
    ],
    group="visterm.encoders",
)
