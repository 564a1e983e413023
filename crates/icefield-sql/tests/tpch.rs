//! Queries of TPC-H with indexes on orders, customer, part and supplier return what they return without.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use icefield_sql::index::build::{BuildOptions, Quiet, build};
use icefield_sql::{IndexRegistry, session_state_with};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

const SCALE: f64 = 0.005;

/// The columns of the tables, and the types that they have in SQL.
const TABLES: &str = include_str!("tpch/tables.txt");

/// The queries, and the number of joins in each that use an index. Where it is less than the number of joins with these
/// tables, the other side of the join has been aggregated or filtered by a condition on several tables.
const QUERIES: [(&str, &str); 11] = [
    ("Q3", include_str!("tpch/q03.sql")),
    ("Q4", include_str!("tpch/q04.sql")),
    ("Q5", include_str!("tpch/q05.sql")),
    ("Q7", include_str!("tpch/q07.sql")),
    ("Q8", include_str!("tpch/q08.sql")),
    ("Q9", include_str!("tpch/q09.sql")),
    ("Q10", include_str!("tpch/q10.sql")),
    ("Q12", include_str!("tpch/q12.sql")),
    ("Q13", include_str!("tpch/q13.sql")),
    ("Q18", include_str!("tpch/q18.sql")),
    ("Q21", include_str!("tpch/q21.sql")),
];

/// The indexes: table, key, and the other columns that the queries need.
const INDEXES: [(&str, &str, &str); 4] = [
    (
        "orders",
        "o_orderkey",
        "o_custkey,o_orderdate,o_shippriority,o_orderpriority,o_totalprice,o_orderstatus",
    ),
    (
        "customer",
        "c_custkey",
        "c_mktsegment,c_nationkey,c_name,c_acctbal,c_phone,c_address,c_comment",
    ),
    ("part", "p_partkey", "p_type,p_name"),
    ("supplier", "s_suppkey", "s_nationkey,s_name"),
];

fn rows<T: Display>(directory: &Path, table: &str, rows: impl Iterator<Item = T>) {
    let mut file = BufWriter::new(File::create(directory.join(format!("{table}.tbl"))).unwrap());
    for row in rows {
        writeln!(file, "{row}").unwrap();
    }
    file.flush().unwrap();
}

/// Writes the tables as Parquet.
async fn generate(directory: &Path) {
    rows(directory, "region", RegionGenerator::new(SCALE, 1, 1).iter());
    rows(directory, "nation", NationGenerator::new(SCALE, 1, 1).iter());
    rows(directory, "part", PartGenerator::new(SCALE, 1, 1).iter());
    rows(directory, "supplier", SupplierGenerator::new(SCALE, 1, 1).iter());
    rows(directory, "partsupp", PartSuppGenerator::new(SCALE, 1, 1).iter());
    rows(directory, "customer", CustomerGenerator::new(SCALE, 1, 1).iter());
    rows(directory, "orders", OrderGenerator::new(SCALE, 1, 1).iter());
    rows(directory, "lineitem", LineItemGenerator::new(SCALE, 1, 1).iter());
    let context = SessionContext::new();
    for line in TABLES.lines() {
        let (table, columns) = line.split_once(": ").unwrap();
        let place = directory.join(table).display().to_string();
        // Every line ends with a separator.
        let create = format!(
            "CREATE EXTERNAL TABLE {table} ({columns}, nothing VARCHAR) STORED AS CSV LOCATION '{place}.tbl' \
             OPTIONS ('format.delimiter' '|', 'format.has_header' 'false')"
        );
        context.sql(&create).await.unwrap();
        let names: Vec<_> = columns.split(", ").map(|one| one.split(' ').next().unwrap()).collect();
        let copy = format!("COPY (SELECT {} FROM {table}) TO '{place}.parquet'", names.join(", "));
        context.sql(&copy).await.unwrap().collect().await.unwrap();
    }
}

async fn session(directory: &Path, registry: &IndexRegistry) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2);
    let context = SessionContext::new_with_state(session_state_with(registry, config));
    for line in TABLES.lines() {
        let (table, _) = line.split_once(": ").unwrap();
        let path = directory.join(format!("{table}.parquet")).display().to_string();
        context.register_parquet(table, &path, ParquetReadOptions::default()).await.unwrap();
    }
    context
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_the_same_with_indexes() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    generate(directory).await;
    let registry = IndexRegistry::default();
    for (table, key, include) in INDEXES {
        let source = directory.join(format!("{table}.parquet")).display().to_string();
        let target = directory.join(format!("{table}.ice"));
        let mut options =
            BuildOptions::new(vec![source], vec![key.to_owned()], target.clone()).unwrap();
        options.include = include.split(',').map(str::to_owned).collect();
        build(&options, &Quiet).await.unwrap();
        registry.open(&target, false).unwrap();
    }
    let without = session(directory, &IndexRegistry::default()).await;
    let with = session(directory, &registry).await;
    let mut used = HashMap::new();
    for (name, sql) in QUERIES {
        let expected = without.sql(sql).await.unwrap().collect().await.unwrap();
        let plan = with.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let text = displayable(plan.as_ref()).indent(false).to_string();
        used.insert(name, text.matches("IndexJoinExec").count());
        let found = datafusion::physical_plan::collect(plan, with.task_ctx()).await.unwrap();
        let [expected, found] =
            [expected, found].map(|rows| pretty_format_batches(&rows).unwrap().to_string());
        assert_eq!(found, expected, "{name}\n{text}");
        let decisions = registry.take_decisions();
        // Q13 groups all customers, with and without orders, by their key.
        assert_eq!(used[name] > 0, name != "Q13", "{name}: {decisions:?}\n{text}");
    }
    println!("index joins: {used:?}");
}
