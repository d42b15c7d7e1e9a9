"""A broken package beside this one gives one clear line that names it, whatever it was to add."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from collegium.coordinator import students
from collegium.data.loading import loading
from collegium.errors import ConfigurationError
from collegium.models import networks
from collegium_accounting import extras
from collegium_accounting.mechanisms import registry

LOOK_UPS: dict[str, tuple[object, str, Callable[[], object]]] = {
    "mechanism": (extras, registry.ENTRY_POINT_GROUP, lambda: registry.mechanism_named("broken")),
    "student": (students, students.ENTRY_POINT_GROUP, lambda: students.find_method("broken")),
    "network": (networks, networks.NETWORKS, lambda: networks.find_architecture("broken")),
    "data source": (loading, loading.ENTRY_POINT_GROUP, lambda: loading.source_named("broken")),
}


@pytest.mark.parametrize("module", ["a_package_that_is_absent", "json"], ids=["no such module", "no such name"])
@pytest.mark.parametrize("what", LOOK_UPS)
def test_a_broken_package_is_named_in_one_line(what: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    room, group, look_up = LOOK_UPS[what]
    points = EntryPoints([EntryPoint("broken", f"{module}:Absent", group)])
    monkeypatch.setattr(room, "installed", lambda group: points.select(group=group))
    monkeypatch.setattr(registry._by_name, "_loaded", False)
    with pytest.raises(ConfigurationError) as failed:
        look_up()
    told = str(failed.value)
    assert f"{what} 'broken'" in told and module in told and "\n" not in told
