"""What hardware carries, against the makers' published numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from syntony.topologies.readers import hardware


@pytest.mark.parametrize(
    ("text", "lanes", "gigabytes"),
    [
        ("2.5 GT/s", 1, 0.25),
        ("5 GT/s", 16, 8),
        ("5.0 GT/s PCIe", 16, 8),
        ("8 GT/s", 16, 15.75),
        ("16.0 GT/s PCIe", 16, 31.5),
        ("32.0 GT/s PCIe", 8, 31.5),
        ("64.0 GT/s PCIe", 16, 121),
    ],
)
def test_pci_express(text: str, lanes: int, gigabytes: float) -> None:
    speed = hardware.pcie_speed(text)
    assert speed is not None
    assert float(hardware.pcie(speed, lanes)) / 1e9 == pytest.approx(gigabytes, abs=5e-4)


@pytest.mark.parametrize("text", ["", "Unknown", "Unknown speed", " "])
def test_a_speed_that_is_not_told(text: str) -> None:
    assert hardware.pcie_speed(text) is None


@pytest.mark.parametrize("text", ["16", "7 GT/s", "16 GB/s", "0 GT/s", "100000 MT/s", "16 GT/s PCIe 4"])
def test_a_speed_that_pci_express_does_not_have(text: str) -> None:
    with pytest.raises(ValueError, match=r"known are 2.5, 5, 8, 16, 32, 64 GT/s"):
        hardware.pcie_speed(text)


@pytest.mark.parametrize(
    ("name", "device", "capability", "bidirectional"),
    [
        ("Tesla P100-SXM2-16GB", "15f9", 60, 160),
        ("Tesla V100-SXM3-32GB-H", "1db8", 70, 300),
        ("NVIDIA A100-SXM4-80GB", "20b2", 80, 600),
        ("NVIDIA RTX A6000", "2230", 86, 112.5),
        ("NVIDIA H100 80GB HBM3", "2330", 90, 900),
        ("NVIDIA GH200 480GB", "2342", 90, 900),
        ("NVIDIA H20", "2329", 90, 900),
        ("NVIDIA B200", "2901", 100, 1800),
        ("NVIDIA GB200", "2941", 100, 1800),
    ],
)
def test_nvlink_of_all_a_gpus_links_together(name: str, device: str, capability: int, bidirectional: float) -> None:
    assert hardware.nvidia_model(name) == hardware.nvidia_device(device) == capability
    assert 2 * hardware.most_nvlinks(capability) * hardware.nvlink(capability) == Fraction(bidirectional) * 10**9


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "NVIDIA L40S", "", "AMD Instinct MI300X"])
def test_models_without_nvlink_are_not_known(name: str) -> None:
    assert hardware.nvidia_model(name) is None


@pytest.mark.parametrize(
    ("architecture", "rate"),
    [
        ("906", 46),
        ("908", 46),
        ("910", 50),
        ("gfx90a", 50),
        ("gfx90a:xnack-", 50),
        ("940", 64),
        ("gfx942", 64),
    ],
)
def test_xgmi(architecture: str, rate: int) -> None:
    assert hardware.xgmi(architecture) == rate * 10**9
