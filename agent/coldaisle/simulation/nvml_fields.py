"""What nvmlDeviceGetFieldValues answers on the simulated machine: id to value type and place.

Value types are those that a real H200 with driver 580 gives (0 double, 1 unsigned int, 3 unsigned long long, 5 int).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from coldaisle.simulation.machine import GPU
from coldaisle.simulation.profiles import Profile

DOUBLE, UINT, ULONGLONG, INT = 0, 1, 3, 5
UNION = {DOUBLE: "dVal", UINT: "uiVal", ULONGLONG: "ullVal", INT: "siVal"}
ALL_LINKS = 0xFFFFFFFF
KIB = 1024
ENERGY_IDS = frozenset({83, 191})
POWER_IDS = frozenset({185, 186})

Values = Any
"""The mapped memory: indexable, floats."""


class Field(NamedTuple):
    """How one field id is answered: `read(values, base, scope)` gives the number, or raises LookupError for a scope."""

    kind: int
    read: Callable[[Values, int, int], float]


def _slot(name: str, factor: float = 1.0) -> Callable[[Values, int, int], float]:
    place = GPU[name]
    if factor == 1.0:
        return lambda values, base, _scope: values[base + place]
    return lambda values, base, _scope: values[base + place] * factor


def _constant(value: float) -> Callable[[Values, int, int], float]:
    return lambda _values, _base, _scope: value


def _wrapping(name: str) -> Callable[[Values, int, int], float]:
    """Bytes in 32 bits, as the hardware counts them: they wrap every few seconds under load."""
    place = GPU[name]
    return lambda values, base, _scope: int(values[base + place]) & 0xFFFFFFFF


def _links(name: str, links: int) -> Callable[[Values, int, int], float]:
    place = GPU[name]

    def read(values: Values, base: int, scope: int) -> float:
        kib: float = values[base + place] / KIB
        if scope == ALL_LINKS:
            return kib
        if scope >= links:
            raise LookupError(scope)
        return kib / links

    return read


def _thermal_policy(values: Values, base: int, _scope: int) -> float:
    """Measured on an H200: the old thermal violation time also runs while the card is merely power-capped."""
    return float(values[base + GPU["ns_power_cap"]] + values[base + GPU["ns_sw_thermal"]])


def fields_of(profile: Profile) -> dict[int, Field]:
    """Return every field id that this product answers; the others are not supported."""
    found = {
        3: Field(ULONGLONG, _slot("sbe_volatile")),
        4: Field(ULONGLONG, _slot("dbe_volatile")),
        5: Field(ULONGLONG, _slot("sbe_aggregate")),
        6: Field(ULONGLONG, _slot("dbe_aggregate")),
        74: Field(ULONGLONG, _slot("ns_power_cap")),
        75: Field(ULONGLONG, _thermal_policy),
        76: Field(ULONGLONG, _slot("ns_sync_boost")),
        82: Field(UINT, _slot("memory_temperature")),
        83: Field(ULONGLONG, _slot("energy")),
        191: Field(ULONGLONG, _slot("energy")),
        94: Field(UINT, _slot("pcie_replays")),
        138: Field(ULONGLONG, _links("b_nvlink_tx", profile.nvlinks)),
        139: Field(ULONGLONG, _links("b_nvlink_rx", profile.nvlinks)),
        142: Field(ULONGLONG, _slot("remap_correctable")),
        143: Field(ULONGLONG, _slot("remap_uncorrectable")),
        144: Field(ULONGLONG, _slot("remap_pending")),
        145: Field(ULONGLONG, _slot("remap_failure")),
        186: Field(UINT, _slot("power", 1000)),
        187: Field(UINT, _constant(profile.power_min * 1000)),
        188: Field(UINT, _constant(profile.power_max * 1000)),
        189: Field(UINT, _constant(profile.power_default * 1000)),
        190: Field(UINT, _slot("enforced", 1000)),
        192: Field(UINT, _slot("requested", 1000)),
        197: Field(UINT, _wrapping("b_pcie_tx")),
        198: Field(UINT, _wrapping("b_pcie_rx")),
        230: Field(UINT, _slot("recovery")),
        **{number: Field(UINT, _constant(0)) for number in range(173, 184)},  # PCIe errors: a healthy link
    }
    if profile.power_average_field:
        found[185] = Field(UINT, _slot("power_average", 1000))
    if profile.margin:
        found |= {
            193: Field(INT, _constant(profile.gpu_max - profile.shutdown)),
            194: Field(INT, _constant(profile.gpu_max - profile.slowdown)),
            195: Field(INT, _constant(0)),
            196: Field(INT, _constant(0)),
            269: Field(ULONGLONG, _slot("ns_sw_thermal")),
            270: Field(DOUBLE, _slot("ns_hw_thermal")),
            271: Field(DOUBLE, _slot("ns_power_brake")),
        }
    return found
