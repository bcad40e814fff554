"""Plans with HTML for notebooks."""

from __future__ import annotations

from anabranch_client.rest.notebook import fields, grid, text
from anabranch_contract.rest.planning.epochs import EpochOut
from anabranch_contract.rest.planning.plans import ExplainOut


class ShownPlan(ExplainOut):
    """The logical plans of a statement (:meth:`explain`), with HTML for notebooks."""

    def _repr_html_(self) -> str:
        refused = None if self.refused is None else self.refused.message
        shown = {"added cost": self.added_cost, "shares with": self.shared_with, "refused": refused}
        stores = [
            {name: value for name, value in store.items() if not isinstance(value, (dict, list))}
            for store in self.stores
        ]
        parts = [fields(shown), "<b>Binary joins</b>", text(self.before.text)]
        parts += ["<b>Multi-way joins</b>", text(self.after.text)]
        parts += ["<b>Stores</b>", grid(stores)] if stores else []
        return "".join(parts)


class EpochPlan(EpochOut):
    """A published epoch with its plan."""

    def _repr_html_(self) -> str:
        return fields({name: getattr(self, name) for name in type(self).model_fields})
