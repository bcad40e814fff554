{# A model is a query of its name; its statement is planned jointly with all other queries. #}
{% materialization continuous_query, adapter='anabranch' %}
  {{ return(anabranch_register(none)) }}
{% endmaterialization %}

{# The same with a Delta table of the present rows as its sink. #}
{% materialization table, adapter='anabranch' %}
  {% set folder = config.get('location', target.get('lake')) %}
  {% if not folder %}
    {{ exceptions.raise_compiler_error("table models need a folder: set lake in the profile, or location in the model's config") }}
  {% endif %}
  {{ return(anabranch_register(folder)) }}
{% endmaterialization %}

{% materialization view, adapter='anabranch' %}
  {{ exceptions.raise_compiler_error("anabranch has no views that are computed when read: set materialized to continuous_query, table or ephemeral") }}
{% endmaterialization %}

{% macro anabranch_register(folder) %}
  {{ run_hooks(pre_hooks) }}
  {% set outcome = adapter.register(
    this.identifier, compiled_code or sql, config.get('query', {}), folder,
    should_full_refresh(), selected_resources) %}
  {% call noop_statement('main', outcome, outcome) %}{{ compiled_code or sql }}{% endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [this.incorporate(type='table')]}) }}
{% endmacro %}
