"""Networks of the literature, with the sizes of their papers as defaults.

================================ ==============================================================
``lenet5`` digits ``alexnet``, ``vgg`` images, by convolutions and dense layers ``inception_v3``
images, by branches of different sizes ``resnet``, ``resnet_cifar`` images, by residual blocks
``mobilenet``, ``mobilenet_v2`` images, with few parameters and products ``unet`` a class for each
pixel ``autoencoder`` a code of a few numbers ``wide_and_deep`` categories and numbers in tables
``bert`` a vector for each word of a text ``lstm_language_model``, ``GPT`` the next word of a text
================================ ==============================================================

All of these but ``GPT``, a class, are functions that make a ``Sequential`` or a ``Model`` from
symbolic tensors. Classifiers return logits. Images are channels-last. ``decoding_graph`` is the
graph by which a network of the last row continues texts.
"""

from __future__ import annotations

from eagerflow.nn.networks.alexnet import alexnet
from eagerflow.nn.networks.autoencoder import autoencoder
from eagerflow.nn.networks.bert import bert
from eagerflow.nn.networks.decoding import decoding_graph
from eagerflow.nn.networks.gpt import GPT
from eagerflow.nn.networks.inception import inception_v3
from eagerflow.nn.networks.language import lstm_language_model
from eagerflow.nn.networks.lenet import lenet5
from eagerflow.nn.networks.mobilenet import mobilenet, mobilenet_v2
from eagerflow.nn.networks.resnet import resnet, resnet_cifar
from eagerflow.nn.networks.unet import unet
from eagerflow.nn.networks.vgg import vgg
from eagerflow.nn.networks.wide_and_deep import wide_and_deep

__all__ = [
    "GPT",
    "alexnet",
    "autoencoder",
    "bert",
    "decoding_graph",
    "inception_v3",
    "lenet5",
    "lstm_language_model",
    "mobilenet",
    "mobilenet_v2",
    "resnet",
    "resnet_cifar",
    "unet",
    "vgg",
    "wide_and_deep",
]


def __dir__() -> list[str]:
    return sorted(__all__)
