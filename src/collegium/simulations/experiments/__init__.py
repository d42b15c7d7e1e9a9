"""Experiments that reproduce tables and figures of the papers, ours beside theirs."""

from collegium.simulations.experiments.base import EXPERIMENTS, Experiment, register, render_results
from collegium.simulations.experiments.individual_knn import IndividualKnn
from collegium.simulations.experiments.pate_mnist import PateMnist

__all__ = ["EXPERIMENTS", "Experiment", "IndividualKnn", "PateMnist", "register", "render_results"]
