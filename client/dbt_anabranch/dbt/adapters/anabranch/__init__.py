"""dbt adapter of anabranch: sources are streams, models are continuous queries."""

from dbt.adapters.anabranch.connections import AnabranchCredentials
from dbt.adapters.anabranch.impl import AnabranchAdapter
from dbt.adapters.base import AdapterPlugin
from dbt.include import anabranch

Plugin = AdapterPlugin(
    adapter=AnabranchAdapter, credentials=AnabranchCredentials, include_path=anabranch.PACKAGE_PATH
)
