"""Linear programs, solved by HiGHS: one thread, no time limit, so the same answer everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats, Ints


class Program:
    """Maximise cost · x over x ≥ 0 with `lower` ≤ A x ≤ `upper`.

    It stays with the solver: after a change the next `solve` starts from the last basis.
    """

    def __init__(
        self,
        cost: Floats,
        rows: Sequence[tuple[Ints, Floats]],
        lower: Floats,
        upper: Floats,
    ) -> None:
        """`rows` are A's rows, each as columns and their values."""
        # Here and not above: loading it takes longer than the rest of a short command.
        import highspy

        lp: Any = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(cost), len(rows)
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_, lp.col_lower_ = cost, np.zeros(len(cost))
        lp.col_upper_ = np.full(len(cost), np.inf)
        lp.row_lower_, lp.row_upper_ = lower, upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lengths = [len(columns) for columns, _ in rows]
        lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate([columns for columns, _ in rows]).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate([values for _, values in rows]).astype(np.float64)
        self._solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solved = highspy.HighsModelStatus.kOptimal
        for option, value in (("output_flag", False), ("threads", 1), ("solver", "simplex")):
            self._solver.setOptionValue(option, value)
        self._solver.passModel(lp)

    def solve(self) -> tuple[Floats, Floats]:
        """The best x, and how much each row's bound holds the objective back (its dual)."""
        self._solver.run()
        status = self._solver.getModelStatus()
        if status != self._solved:
            raise PolicyError(
                f"HiGHS ended with {self._solver.modelStatusToString(status)!r} on a program of "
                f"{self._solver.getNumCol()} columns; are the speeds of all jobs sensible numbers?"
            )
        solution = self._solver.getSolution()
        return np.array(solution.col_value), np.array(solution.row_dual)

    def set_coefficient(self, row: int, column: int, value: float) -> None:
        """Change one number of A."""
        self._solver.changeCoeff(row, column, value)

    def set_lower(self, row: int, lower: float) -> None:
        """Ask for at least `lower` in a row, and nothing else."""
        self._solver.changeRowBounds(row, lower, np.inf)
