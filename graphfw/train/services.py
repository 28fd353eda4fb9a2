"""Loggers of services, by other packages: each keeps a run's record, and ends the run."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

from graphfw.hints.calls import explained
from graphfw.utils.packages import package


class _Service(abc.ABC):
    """A logger of a service: a run from `begin` to `close`, which goes on after another `begin`."""

    _name: ClassVar[str]

    def __init__(
        self,
        project: str,
        *,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._module = package(self._name, f"gf.train.{type(self).__name__}")
        self._project = project
        self._run_name = name
        self._config = dict(config or {})
        self._options = options
        self._before: dict[str, Any] = {}
        """The arguments that name the run of an earlier `begin`, if there was one."""
        self._run: Any = None

    def begin(self, record: Mapping[str, Any]) -> None:
        """Start the run, with its record; after `close` it is the same one."""
        self.close()
        self._run = self._started(record)

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Log the values; where no run was begun, one without a record is."""
        if self._run is None:
            self.begin({})
        self._log(step, dict(values))

    def close(self) -> None:
        """End the run."""
        if self._run is not None:
            self._run = None
            self._finish()

    @abc.abstractmethod
    def _started(self, record: Mapping[str, Any]) -> Any:
        """Start a run, or go on with the one before, and return it."""

    @abc.abstractmethod
    def _log(self, step: int, values: dict[str, float]) -> None:
        """Log values."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """End the run."""


class _Tracked(_Service):
    """A logger for services with the functions `init`, `log` and `finish`."""

    _identity: ClassVar[str]
    """The argument that names a run to go on with, and the attribute of a run that has it."""

    def _started(self, record: Mapping[str, Any]) -> Any:
        first = {"name": self._run_name} | ({"resume": "allow"} if self._before else {})
        run = self._module.init(
            project=self._project,
            config={**record, **self._config},
            **{**first, **self._before, **self._options},
        )
        self._before = {self._identity: getattr(run, self._identity)}
        return run

    def _log(self, step: int, values: dict[str, float]) -> None:
        self._module.log(values, step=step)

    def _finish(self) -> None:
        self._module.finish()


@explained
class Wandb(_Tracked):
    """A logger for Weights & Biases, by the package wandb.

    The config of the run is its `run_record` with `config`. The run ends with `fit`, and goes on
    if `fit` is called again. The service only takes growing steps, as `resume=True` makes them.

    Args:
        project: The name of the project.
        name: The name of the run; by default the service makes one.
        config: Further values to keep with the run, such as the options of the model.
        options: Other arguments of `wandb.init`, such as `mode="offline"`.

    Raises:
        ImportError: The package wandb is missing.
    """

    _name = "wandb"
    _identity = "id"


@explained
class Trackio(_Tracked):
    """A logger for Trackio, by the package trackio.

    Arguments are those of `Wandb`; `options` are other arguments of `trackio.init`.

    Raises:
        ImportError: The package trackio is missing.
    """

    _name = "trackio"
    _identity = "name"


@explained
class MLflow(_Service):
    """A logger for MLflow, by the package mlflow.

    Tags of the run are its `run_record`, parameters are `config`. The run ends with `fit`, and goes
    on where `fit` is called again.

    Args:
        project: The name of the experiment.
        name: The name of the run; by default the service makes one.
        config: Further values to keep with the run, such as the options of the model.
        options: Other arguments of `mlflow.start_run`, such as `description`.

    Raises:
        ImportError: The package mlflow is missing.
    """

    _name = "mlflow"

    def _started(self, record: Mapping[str, Any]) -> Any:
        mlflow = self._module
        mlflow.set_experiment(self._project)
        run = mlflow.start_run(run_name=self._run_name, **{**self._before, **self._options})
        if not self._before:
            mlflow.log_params(self._config)
        mlflow.set_tags({f"graphfw.{key}": str(value) for key, value in record.items()})
        self._before = {"run_id": run.info.run_id}
        return run

    def _log(self, step: int, values: dict[str, float]) -> None:
        self._module.log_metrics(values, step=step)

    def _finish(self) -> None:
        self._module.end_run()
