"""AWS Budgets."""

from __future__ import annotations

from typing import Any

from ministack.core.responses import get_account_id

from operations.emulator.server.calls import already_gone_is_fine, client, typed
from operations.emulator.server.provisioners.resource_type import (
    Created,
    Properties,
    ResourceType,
    physical_name,
    replace,
)


class Budget(ResourceType):
    """AWS::Budgets::Budget; Ref gives the budget's name."""

    name = "AWS::Budgets::Budget"
    create_only = ("NotificationsWithSubscribers",)

    def create(self, logical_id: str, properties: Properties, stack: str) -> Created:
        """Make the budget with its notifications."""
        name = properties["Budget"].get("BudgetName") or physical_name(
            stack, logical_id, longest=100
        )
        request = {
            **self._request(name, properties["Budget"]),
            **{key: value for key, value in properties.items() if key != "Budget"},
        }
        client("budgets").create_budget(**typed("budgets", "CreateBudget", request))
        return name, {"Id": name}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Created:
        """Change the limit and the like; another name is another budget."""
        if old["Budget"].get("BudgetName") != new["Budget"].get("BudgetName"):
            return replace(self, physical_id, old, new, stack)
        request = self._request(physical_id, new["Budget"])
        request["NewBudget"] = request.pop("Budget")
        client("budgets").update_budget(**typed("budgets", "UpdateBudget", request))
        return physical_id, {"Id": physical_id}

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the budget."""
        with already_gone_is_fine():
            client("budgets").delete_budget(AccountId=get_account_id(), BudgetName=physical_id)

    @staticmethod
    def _request(name: str, budget: Properties) -> dict[str, Any]:
        return {"AccountId": get_account_id(), "Budget": {**budget, "BudgetName": name}}
