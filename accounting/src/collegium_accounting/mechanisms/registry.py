"""Mechanisms by name. A mechanism joins by ``@register``, from this package or from a plug-in.

Every module of this package is imported on the first look-up, so a new mechanism is a new file and
nothing else. A plug-in names its module or class under the entry-point group ``collegium.mechanisms``.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from collegium_accounting.errors import ConfigurationError
from collegium_accounting.extras import Registry
from collegium_accounting.mechanisms.base import Mechanism
from collegium_accounting.mechanisms.parameters import Value, check_names, fields_of

ENTRY_POINT_GROUP = "collegium.mechanisms"

MechanismClass = TypeVar("MechanismClass", bound=type[Any])

_by_name: Registry[type[Mechanism]] = Registry(
    ENTRY_POINT_GROUP, "the mechanism", "two mechanisms are called", package=__name__.rpartition(".")[0]
)


def register(cls: MechanismClass) -> MechanismClass:
    """Class decorator: make a mechanism known by its ``name``.

    Raises ConfigurationError when the class is not a frozen dataclass derived from `Mechanism` with a ``name`` and a
    ``source``, or when another class has the name already.
    """
    parameters = getattr(cls, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or not issubclass(cls, Mechanism):
        raise ConfigurationError(
            f"a mechanism must be a frozen dataclass derived from Mechanism; {cls.__qualname__} is not"
        )
    name = getattr(cls, "name", "")
    if not name or not getattr(cls, "source", ""):
        raise ConfigurationError(f"{cls.__qualname__} needs a name and a source (the paper and theorem of its charge)")
    _by_name.add(name, cls)
    return cls


def mechanism_named(name: str) -> type[Mechanism]:
    """The class registered as ``name``; raises ConfigurationError, listing the known names, if there is none."""
    try:
        return _by_name.loaded()[name]
    except KeyError:
        raise ConfigurationError(
            f"no mechanism is called {name!r}; choose one of {', '.join(known_names())}, or install the package that "
            "has it: collegium-reproduction has those of the papers, such as knn"
        ) from None


def known_names() -> tuple[str, ...]:
    """The registered names, sorted."""
    return tuple(sorted(_by_name.loaded()))


def default_names() -> tuple[str, ...]:
    """The mechanisms of this package: what a policy agrees to unless it names others.

    One that protects nobody is not among them, and neither is one from another installed package.
    """
    own = __name__.partition(".")[0]
    return tuple(
        name
        for name, cls in sorted(_by_name.loaded().items())
        if cls.private and cls.__module__.partition(".")[0] == own
    )


def create(name: str, /, **parameters: Value | None) -> Mechanism:
    """The mechanism ``name`` with these parameters; raises ConfigurationError for a wrong, unknown or missing one.

    Examples
    --------
    >>> create("gnmax", sigma=40)
    GNMax(sigma=40.0)
    """
    cls = mechanism_named(name)
    check_names(name, cls, parameters)
    return cls(**parameters)


def numbers_of(mechanism: Mechanism) -> dict[str, float]:
    """A mechanism's parameters as they travel in a request; raises ConfigurationError where one is a text."""
    texts = [name for name, value in mechanism.parameters().items() if isinstance(value, str)]
    if texts:
        raise ConfigurationError(f"{mechanism.name}: parties cannot be told {texts[0]!r}, which is no number")
    return {name: float(value) for name, value in mechanism.parameters().items()}


def from_numbers(name: str, numbers: Mapping[str, float]) -> Mechanism:
    """The mechanism that `numbers_of` described; raises ConfigurationError as `create` does."""
    fields = fields_of(mechanism_named(name))
    truths = {key for key, field in fields.items() if field.kind is bool and numbers.get(key) in (0.0, 1.0)}
    return create(name, **{key: bool(value) if key in truths else value for key, value in numbers.items()})
