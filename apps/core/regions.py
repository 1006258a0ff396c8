"""The regions and their announced addresses; limits are in `apps/rate_limits/table.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RegionName = Literal["us", "eu"]
BILLING_REGION = "us"
"""The region whose database stores payment and billing records."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region with its own databases."""

    name: RegionName
    title: str
    egress: tuple[str, ...]
    """Source addresses of requests to customers' servers."""
    ingress: tuple[str, ...]
    """Addresses of the UI, API and beacon host names."""

    @property
    def keeps_billing(self) -> bool:
        return self.name == BILLING_REGION


REGIONS: dict[str, Region] = {
    "us": Region(
        name="us",
        title="United States",
        egress=(
            "34.59.65.97",
            "34.67.51.221",
            "34.46.212.37",
            "34.132.150.88",
            "35.188.222.201",
            "34.58.194.127",
            "34.59.97.173",
            "104.198.162.55",
        ),
        ingress=("34.8.121.39", "34.107.251.234"),
    ),
    "eu": Region(
        name="eu",
        title="European Union",
        egress=(
            "34.13.192.67",
            "34.147.105.64",
            "34.90.22.166",
            "34.147.36.213",
            "34.32.137.113",
            "34.91.238.184",
            "35.204.101.241",
            "35.204.48.32",
        ),
        ingress=("34.95.92.214", "34.13.73.122"),
    ),
}
