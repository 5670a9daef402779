"""Puts what cargo builds into the wheel: the extension, and the programs jobctl and pumice.

Called by hatchling, for `make wheel` and for `pip install` of this folder. What cargo has built it doesn't build again.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Built product -> its place in the wheel.
EXTENSION = ("lib_core.so", "pumice/_core.abi3.so")
# Calls of cargo -> the programs of them; by PUMICE_WHEEL_CLIENT for those who talk to a platform elsewhere.
WHOLE = ([["shim"], ["ship", "--release"]], ["jobctl", "pumice"])
CLIENT = ([["client", "--release"]], ["jobctl"])


class Products(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds what ships and says where it goes; see hatchling's documentation of build hooks."""
        root = Path(self.root).parent
        target = root / os.environ.get("CARGO_TARGET_DIR", "target")
        cargo = os.environ.get("CARGO", "cargo")
        calls, programs = CLIENT if os.environ.get("PUMICE_WHEEL_CLIENT") else WHOLE
        for call in calls:
            subprocess.run([cargo, *call], cwd=root, check=True)

        packed = target / "wheel"
        shutil.rmtree(packed, ignore_errors=True)
        packed.mkdir(parents=True)
        for name in [EXTENSION[0], *programs]:
            subprocess.run(["strip", "-o", packed / name, target / "release" / name], check=True)
            (packed / name).chmod(0o755)
        build_data["force_include"][str(packed / EXTENSION[0])] = EXTENSION[1]
        build_data["shared_scripts"].update({str(packed / name): name for name in programs})
        # One extension for every Python from 3.11 on. `make wheel` says for which Linux.
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-linux_{platform.machine()}"
