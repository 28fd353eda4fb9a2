"""Operators outside of deep learning: classical machine learning, strings, regular expressions.

Nothing of a module is imported before a model has one of its operators.
"""

from __future__ import annotations

import importlib

_ML = "ai.onnx.ml"

MODULES = {
    "features": (
        _ML,
        "ArrayFeatureExtractor Binarizer CastMap DictVectorizer FeatureVectorizer Imputer "
        "LinearClassifier LinearRegressor Normalizer OneHotEncoder Scaler ZipMap",
    ),
    "labels": (_ML, "CategoryMapper LabelEncoder"),
    "strings": ("", "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer"),
    "svm": (_ML, "SVMClassifier SVMRegressor"),
    "trees": (_ML, "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor"),
}
"""The domain and the names of the operators of each module of this folder."""

_MODULE_OF = {
    (domain, name): module for module, (domain, names) in MODULES.items() for name in names.split()
}


def import_for(domain: str, name: str) -> None:
    """Import the module that builds an operator, if one of this folder does."""
    module = _MODULE_OF.get((domain, name))
    if module is not None:
        importlib.import_module(f"{__name__}.{module}")
