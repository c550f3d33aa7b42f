{{ config(materialized="table", meta={"export": "customers.parquet"}) }}

select id, upper(name) as name
from (values (1, 'ada'), (2, 'bo')) as people (id, name)
