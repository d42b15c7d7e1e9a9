"""What is said of a mistake in a TOML file: its line, its key, and the setting that was probably meant."""

from pathlib import Path

import pytest

from collegium.coordinator.settings.consortium import ConsortiumConfig, read_consortium
from collegium.errors import ConfigurationError
from collegium.settings import line_of, toml_value, validate_config

CONFIG = """\
name = "trial"

[consortium]
address = "localhost:1"
enrolment = "localhost:2"
parties = ["ash", "birch", "cedar"]
folder = "c"

[task]
classes = ["no", "yes"]
inputs = { kind = "image", height = 2, width = 2 }

[pool]
source = "pool.npz"

[mechanism]
name = "gnmax"
parameters = { sigma = 10.0 }

[budget]
epsilon = 1.0
"""


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("sigma = 10.0", "sigmaa = 10.0", "line 18: mechanism.parameters: .*'sigmaa': did you mean sigma?"),
        ('"gnmax"', '"gnmx"', "line 17: mechanism.name: .*'gnmx': did you mean gnmax?"),
        ("epsilon = 1.0", "epsilom = 1.0", "line 20: budget.epsilon: is missing; line 21: .*did you mean epsilon?"),
        ("source =", "sourse =", "line 14: pool.sourse: there is no such setting: did you mean source?"),
        ("height = 2", "hight = 2", "line 11: task.inputs.image.hight: there is no such setting: did you mean height"),
        ('folder = "c"', 'folder = "c"\nqqq = 1', "line 8: .*qqq: there is no such setting; there are address"),
        ("[pool]", "[pol]", "line 13: pol: there is no such setting: did you mean pool?"),
        ("[pool]", '[pool]\nquery = "SELECT 1"', "line 13: pool: a database's URL .* belong together"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_was_meant(tmp_path: Path, right: str, wrong: str, words: str) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text(CONFIG.replace(right, wrong))
    with pytest.raises(ConfigurationError, match=words.replace("?", r"\?")):
        read_consortium(path)


def test_the_line_is_that_of_the_deepest_key_that_the_text_holds() -> None:
    text = '[a]\nb = 1\n[[a.c]]\n"d e" = { f = 1 }\n'
    assert [line_of(text, place) for place in (["a", "b"], ["a", "c", "d e", "f"], ["a", "x"], ["z"])] == [2, 4, 1, 0]


def test_values_that_were_no_file_have_no_lines() -> None:
    with pytest.raises(ConfigurationError, match=r"^test: name: is missing; "):
        validate_config({}, ConsortiumConfig, "test")


def test_a_table_is_written_as_toml_reads_it() -> None:
    import tomllib

    value = {"x y": ["a", 1.5, True], "inner": {"ü": '"'}}
    assert tomllib.loads(f"value = {toml_value(value)}")["value"] == value
