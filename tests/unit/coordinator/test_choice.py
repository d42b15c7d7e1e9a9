"""What `auto`, or a setting that is left out, comes to: decided by public facts, and said."""

import json
from typing import Any

import pytest
from support.sums_scene import TASK

from collegium.coordinator.settings.run_config import RunConfig
from collegium.data.task import ImageInputs, Inputs, VectorInputs
from collegium.errors import ConfigurationError
from collegium.settings import validate_config


def _config(inputs: Inputs = TASK.inputs, **sections: Any) -> RunConfig:
    task = TASK.model_copy(update={"inputs": inputs}).model_dump(mode="json")
    values = {"name": "trial", "task": task, "pool": {"source": "pool.npz"}, "budget": {"epsilon": 1.0}}
    return validate_config(values | sections, RunConfig, "trial")


AUTO = {"mechanism": {"name": "auto"}, "student": {"method": "auto"}}


@pytest.mark.parametrize("unit", ["record", "party"])
@pytest.mark.parametrize(
    ("inputs", "features"),
    [
        (TASK.inputs, "features ranks, bandwidth 0.6, as inputs are rows of a table"),
        (VectorInputs(size=8), "features raw, bandwidth 0.4, as inputs are vectors"),
        (ImageInputs(height=28, width=28), "features pyramid, bandwidth 0.4, as inputs are images"),
    ],
)
def test_auto_is_what_is_left_out_and_says_why(unit: str, inputs: Inputs, features: str) -> None:
    budget = {"epsilon": 1.0, "unit": unit}
    auto, left_out = _config(inputs, budget=budget, **AUTO), _config(inputs, budget=budget)
    assert auto == left_out
    assert (auto.mechanism.name, auto.student.method, auto.votes.mode) == ("class-sums", "kernel", "masked+noised")
    assert auto.choice.startswith("class-sums and the student kernel: ") and features in auto.choice


def test_the_resolved_names_are_what_parties_and_records_are_shown() -> None:
    shown = _config(**AUTO).model_dump(mode="json", include={"mechanism", "student", "votes"})
    assert shown["votes"].pop("groups") == "auto", "their number follows from the roster, which is no setting"
    assert "auto" not in json.dumps(shown)


def test_teachers_turn_auto_into_votes() -> None:
    sigma = {"mechanism": {"name": "auto", "parameters": {"sigma": 40.0}}, "student": {"method": "auto"}}
    config = _config(teachers={"per_party": 2}, **sigma)
    assert (config.mechanism.name, config.student.method, config.votes.mode) == ("gnmax", "consistency", "masked")
    assert config.choice == "gnmax and the student consistency, as teachers, neighbours or a mechanism are configured"


def test_a_setting_that_is_made_wins_and_is_called_configured() -> None:
    config = _config(sums={"bandwidth": 0.5}, student={"method": "consistency"})
    assert config.student.method == "consistency"
    assert "features ranks, bandwidth 0.5, as configured" in config.choice


def test_auto_does_not_hide_a_wrong_parameter() -> None:
    with pytest.raises(ConfigurationError, match="class-sums has no parameter 'gamma'"):
        _config(mechanism={"name": "auto", "parameters": {"gamma": 0.1}})


def test_a_record_that_is_read_again_calls_nothing_configured_that_was_not() -> None:
    """Its file writes every setting down: reports said "as configured" of what nobody had set."""
    config = _config()
    again = validate_config(config.model_dump(mode="json"), RunConfig, "run.json")
    assert again.choice == config.choice and "as inputs are rows of a table" in again.choice
