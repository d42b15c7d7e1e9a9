"""The public sets of the papers and of the comparisons beside them, as data sources with their tasks."""

from __future__ import annotations

from collegium.data.loading.loading import PublicSet
from collegium_reproduction.data import images, tables

_TASKS = "collegium_reproduction.data"

ADULT = PublicSet("adult", tables.read_adult, _TASKS)
CELEBA = PublicSet("celeba", images.read_celeba, _TASKS)
CIFAR10 = PublicSet("cifar10", images.read_cifar10, _TASKS)
DIABETES = PublicSet("diabetes", tables.read_diabetes, _TASKS)
FASHION_MNIST = PublicSet("fashion-mnist", images.read_fashion_mnist, _TASKS)
HEART = PublicSet("heart", tables.read_heart, _TASKS)
MNIST = PublicSet("mnist", images.read_mnist, _TASKS)
SCHOOL = PublicSet("school", tables.read_school, _TASKS)
SVHN = PublicSet("svhn", images.read_svhn, _TASKS)
