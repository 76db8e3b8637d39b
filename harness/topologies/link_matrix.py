"""Parse the matrix of `nvidia-smi topo -m`: the link of each pair of GPUs and network devices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations

from harness.model.errors import UsageError, printable

SELF = "X"
# From near to far; NVLink is nearer than all of these. Drivers before 390 print `SOC` for `SYS`.
PCIE_KINDS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_OLD_NAMES = {"SOC": "SYS"}

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_AFFINITIES = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID")
_GPU = re.compile(r"GPU\d+")
_LINK = re.compile(rf"{SELF}|NV\d+|{'|'.join((*PCIE_KINDS, *_OLD_NAMES))}")
_NIC_NAME = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*")
_MOST_DEVICES = 512


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """The links between the GPUs and network devices of one host.

    `links` maps each ordered pair of different devices to its link type: `NV4` for four NVLinks, or
    one of `PCIE_KINDS`. `nic_names` maps a network device's name in the matrix to its name in the
    operating system, such as `NIC0` to `mlx5_0`.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    links: Mapping[tuple[str, str], str]
    nic_names: Mapping[str, str] = field(default_factory=dict)

    def link(self, one: str, other: str) -> str:
        """Return the link type of two devices, `X` for a device with itself."""
        return SELF if one == other else self.links[one, other]

    def nvlinks(self, one: str, other: str) -> int:
        """Return the number of NVLinks between two GPUs."""
        return nvlinks_of(self.link(one, other))

    def gpu_links(self) -> list[str]:
        """Return the link types of all ordered pairs of GPUs."""
        return [self.links[pair] for pair in permutations(self.gpus, 2)]

    def name_of(self, nic: str) -> str:
        """Return the operating system's name of a network device, or `nic` if unknown."""
        return self.nic_names.get(nic, nic)


def nvlinks_of(kind: str) -> int:
    """Return the number of NVLinks in a link type: 4 for `NV4`, 0 for PCIe types."""
    return int(kind[2:]) if kind.startswith("NV") else 0


def distance(kind: str) -> int:
    """Return a sort key for link types, from near to far: 0 for NVLink, 1 to 5 for PCIe types."""
    return 1 + PCIE_KINDS.index(kind) if kind in PCIE_KINDS else 0


def parse_matrix(text: str, file: str) -> LinkMatrix:
    """Parse the output of `nvidia-smi topo -m`, also as part of a longer text.

    Fields are separated by tabs or spaces. Ignore escape sequences, affinity columns and lines that
    start with `#`. Raise UsageError that names the line if there is no matrix, or if it is
    incomplete, has wrapped lines or contradicts itself.
    """
    lines = [
        (f"{file}, line {number}", _ESCAPE.sub("", line).strip())
        for number, line in enumerate(text.splitlines(), start=1)
        if not line.startswith("#")
    ]
    at = next((index for index, (_, line) in enumerate(lines) if _is_header(line)), None)
    if at is None:
        raise UsageError(
            f"{file}: no matrix of `nvidia-smi topo -m` is in it, whose first line names GPU0."
        )
    devices = _devices(*lines[at])
    rows = [(where, line.split()) for where, line in lines[at + 1 :] if line]
    links: dict[tuple[str, str], str] = {}
    for position, device in enumerate(devices):
        if position >= len(rows):
            raise UsageError(f"{lines[-1][0]}: the matrix ends before its row of {device}.")
        where, words = rows[position]
        for other, kind in zip(devices, _kinds(where, device, words, len(devices)), strict=True):
            if (device == other) != (kind == SELF):
                raise UsageError(
                    f"{where}: {device} is joined with {other} by '{kind}': only a device with "
                    f"itself is '{SELF}', so the line is wrapped or columns are missing."
                )
            links[device, other] = kind
            if links.get((other, device), kind) != kind:
                raise UsageError(
                    f"{where}: {device} is joined with {other} by {kind}, but {other} with "
                    f"{device} by {links[other, device]}."
                )
    gpus = tuple(device for device in devices if _GPU.fullmatch(device))
    found = (_NIC_NAME.fullmatch(line) for _, line in lines[at + 1 :])
    return LinkMatrix(
        gpus=gpus,
        nics=tuple(device for device in devices if device not in gpus),
        links={pair: kind for pair, kind in links.items() if kind != SELF},
        nic_names={match[1]: printable(match[2]) for match in found if match},
    )


def _is_header(line: str) -> bool:
    words = line.split()
    if not words or not _GPU.fullmatch(words[0]):
        return False
    return len(words) == 1 or not _LINK.fullmatch(words[1])


def _devices(where: str, header: str) -> tuple[str, ...]:
    devices = tuple(_AFFINITIES.sub("", header).split())
    if len(set(devices)) < len(devices):
        raise UsageError(f"{where}: a device is named twice in the header of the matrix.")
    if len(devices) > _MOST_DEVICES:
        raise UsageError(f"{where}: a matrix must have at most {_MOST_DEVICES} devices.")
    for device in devices:
        if _LINK.fullmatch(device) or not re.fullmatch(r"\w[\w.:-]*", device):
            raise UsageError(f"{where}: '{device}' is no name of a device.")
    return devices


def _kinds(where: str, device: str, words: list[str], count: int) -> list[str]:
    """Return the link types in the row of a device, one for each device in the header."""
    cut = "the matrix is cut or its lines are wrapped; save it with `nvidia-smi topo -m > FILE`."
    if words[0] != device:
        raise UsageError(f"{where}: the row of {device} must be here, not '{words[0]}': {cut}")
    kinds = [_OLD_NAMES.get(word, word) for word in words[1 : 1 + count]]
    known = next((at for at, kind in enumerate(kinds) if not _LINK.fullmatch(kind)), len(kinds))
    if known < count:
        what = f"has '{kinds[known]}' in it" if known < len(kinds) else "ends"
        raise UsageError(
            f"{where}: the row of {device} {what} after {known} of {count} links: {cut}"
        )
    return kinds
