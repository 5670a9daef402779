"""Where a job's work lies so that its pods see it, and the Job that runs it there.

The work and its results are in `bundles` of a folder, the user's unpacked modules in `archives`. Pods of this machine's
platform see the user's cache; those of a cluster or of a fleet see a folder that is named, under the same path: one that
all nodes mount.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _core, node_cache
from .backend import JobSpec, OnOom, Options
from .default_chunk import default_chunk
from .errors import NoBackend, Refused

__all__ = ["TASK", "Place"]

TASK = "main"
"""The task whose pods are the shards."""
_BUNDLES = "bundles"
_STEM = 30


@dataclass(frozen=True, slots=True)
class Place:
    """The folder, and whose pods see it."""

    folder: Path
    here: bool
    """They are those of this machine's platform, with its files and its programs."""
    fleet: bool
    """They are those of a fleet: each is a job of its own."""

    @classmethod
    def of(cls, described: _core.Description, folder: str | os.PathLike[str] | None) -> Place:
        """That of a connection's jobs. Elsewhere somebody has to name the folder."""
        named = folder or (None if described["local"] else os.environ.get("PUMICE_CACHE"))
        if named is None and not described["local"]:
            raise NoBackend(
                f"The pods of {described['url']} have to see the work and write its results: name a folder that all nodes"
                ' see at the same path, pumice.use(pumice.context(folder="/shared/me/pumice")), or in PUMICE_CACHE.'
            )
        chosen = (node_cache.cache_folder() if named is None else Path(named)).absolute()
        # Elsewhere a link may lead to another place.
        return cls(chosen.resolve() if described["local"] else chosen, described["local"], described["fleet"])

    @property
    def bundles(self) -> Path:
        """The folder of bundles."""
        return self.folder / _BUNDLES

    @property
    def archives(self) -> Path:
        """The folder of what is unpacked."""
        return self.folder / node_cache.ARCHIVES

    def make(self) -> None:
        """Make what pods elsewhere have to find: a node makes no folder under a path that nobody mounted there."""
        if not self.here:
            self.archives.mkdir(parents=True, exist_ok=True)

    def chunk(self, spec: JobSpec) -> int:
        """Records of a pod."""
        count = len(spec.records)
        chunk = spec.chunk or default_chunk(count, here=self.here)
        # A fleet bounds no job's pods that run at a time. So there are no more of them.
        bound = spec.options.max_parallel if self.fleet else None
        return max(chunk, -(-count // bound)) if bound else chunk

    def job(self, spec: JobSpec, bundle: str, chunk: int) -> dict[str, Any]:
        """The Job."""
        options = spec.options
        if self.fleet and (options.cpu is None or options.memory is None):
            raise Refused("A fleet has to know what each pod takes: say cpu and memory, such as cpu=1, memory='1Gi'.")
        pods = -(-len(spec.records) // chunk)
        python, env = self._program(options)
        env |= {"PUMICE_BUNDLE": bundle, "PUMICE_WORK_CHUNK": str(chunk)}
        if options.timeout is not None:
            env["PUMICE_WORK_TIMEOUT"] = repr(options.timeout)
        if self.here:
            _tell_links(str(Path.cwd()))
        job = _core.render(
            # -P: what lies in the pod's folder isn't on the path before the packages.
            [python, "-P", "-m", "pumice.worker"],
            image=options.image,
            replicas=pods,
            cpu=options.cpu,
            memory=options.memory,
            queue=options.queue,
            priority_class=options.priority,
            env=env,
            # Elsewhere nobody knows that there is such a folder.
            workdir=str(Path.cwd()) if self.here else None,
            share_workdir=self.here,
            min_available=1,
            # Said also where all may run at once: such pods don't need to know each other, so there may be very many.
            max_parallel=None if self.fleet else min(options.max_parallel or pods, pods),
            # None and not 0, which would ask for pods made again where their node was lost.
            retries=options.retries or None,
            gpu=options.gpu,
            zone=options.zone,
        )
        # A map runs many times under one name, so the name is only the beginning of the job's.
        job["metadata"]["generateName"] = _beginning(options.name or "map")
        self._mount(job["spec"]["tasks"][0]["template"]["spec"])
        if options.on_oom is not None:
            job["metadata"].setdefault("annotations", {})["pumice.sh/on-oom"] = _on_oom(options.on_oom)
        return job

    def _program(self, options: Options) -> tuple[str, dict[str, str]]:
        """The Python of the pods, and its variables."""
        # What a process wrote before it was killed is wanted most. What one pod has unpacked is there for those after it.
        env = {**options.env, "PYTHONUNBUFFERED": "1", "PUMICE_CACHE": str(self.folder)}
        # An image brings Python and this library; without one they are those of this machine.
        if options.image is not None:
            return "python3", env
        env["PYTHONPATH"] = str(Path(__file__).parents[1])
        env.setdefault("PATH", os.environ.get("PATH", os.defpath))
        return sys.executable, env

    def _mount(self, pod: dict[str, Any]) -> None:
        kind = "DirectoryOrCreate" if self.here else "Directory"
        for folder in (self.bundles, self.archives):
            volume = {"name": folder.name, "hostPath": {"path": str(folder), "type": kind}}
            pod.setdefault("volumes", []).append(volume)
            mounts = pod["containers"][0].setdefault("volumeMounts", [])
            # A link of the working folder may lead there, too.
            if all(mount["mountPath"] != str(folder) for mount in mounts):
                mounts.append({"name": folder.name, "mountPath": str(folder)})


@functools.cache
def _tell_links(folder: str) -> None:
    """Say where links of the working folder lead; once, as a notebook maps often."""
    for note in _core.link_notes(folder):
        print(f"pumice: {note}", file=sys.stderr)  # noqa: T201


def _beginning(name: str) -> str:
    stem = re.sub("[^a-z0-9]+", "-", name.lower())[:_STEM].strip("-")
    return f"{stem if stem[:1].isalpha() else f'map-{stem}'.rstrip('-')}-"


def _on_oom(rule: OnOom) -> str:
    parts = {"factor": rule.factor, "step": rule.step, "ceiling": rule.ceiling, "tries": rule.tries}
    return ",".join(f"{name}={value}" for name, value in parts.items() if value is not None)
