"""``python -m anabranch_planner``: planning problems as documents, without a service."""
