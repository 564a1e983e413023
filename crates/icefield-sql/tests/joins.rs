//! Joins through indexes return what DataFusion's own joins return: a generated matrix of types, join types, sizes,
//! nulls, duplicates, conditions and partitions.
//!
//! `ICEFIELD_CASES` sets the number of cases, `ICEFIELD_SEED` the first seed. With `ICEFIELD_DUMP`, the cases that other
//! engines can answer are written to a directory, for `tests/with_duckdb.py`.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod joins {
    mod chains;
    mod codec;
    mod single;
}

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::ipc::writer::FileWriter;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::physical_plan::DefaultPhysicalExtensionCodec;
use icefield_sql::index::build::{BuildOptions, Quiet, build};
use icefield_sql::{
    IndexCodec, IndexRegistry, IndexRoot, IndexTable, cluster_session_state, session_state_with,
};

/// A generator of numbers: the same ones for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// Types that are compared with each other.
fn families() -> Vec<Vec<DataType>> {
    use DataType as D;
    let timestamp = |unit| D::Timestamp(unit, None);
    let instant = |unit| D::Timestamp(unit, Some("UTC".into()));
    let dictionary = |values| D::Dictionary(Box::new(D::Int32), Box::new(values));
    vec![
        vec![D::Int8, D::Int16, D::Int32, D::Int64, D::UInt8, D::UInt16, D::UInt32, D::UInt64],
        vec![D::Int64, D::UInt64, D::Decimal128(12, 0), D::Decimal128(18, 2)],
        vec![D::Decimal128(10, 2), D::Decimal128(14, 4), D::Decimal256(50, 6)],
        vec![D::Date32],
        vec![D::Date64],
        vec![D::Boolean],
        vec![
            timestamp(TimeUnit::Second),
            timestamp(TimeUnit::Millisecond),
            timestamp(TimeUnit::Microsecond),
            timestamp(TimeUnit::Nanosecond),
        ],
        vec![instant(TimeUnit::Millisecond), instant(TimeUnit::Nanosecond)],
        vec![D::Utf8, D::LargeUtf8, D::Utf8View, dictionary(D::Utf8)],
        vec![D::Binary, D::LargeBinary, D::BinaryView],
        vec![dictionary(D::Int64), D::Int64],
    ]
}

/// Returns a column of `type` with these values.
fn column(numbers: &Int64Array, data_type: &DataType) -> ArrayRef {
    use DataType as D;
    let numbers: ArrayRef = Arc::new(numbers.clone());
    let text = || -> ArrayRef {
        let numbers = numbers.as_any().downcast_ref::<Int64Array>().unwrap();
        let texts = numbers.iter().map(|n| {
            n.map(|n| format!("key number {n} {}", "x".repeat(n.unsigned_abs() as usize % 20)))
        });
        Arc::new(texts.collect::<StringArray>())
    };
    match data_type {
        D::Dictionary(_, values) => {
            cast(&column(numbers.as_any().downcast_ref().unwrap(), values), data_type).unwrap()
        }
        D::Utf8 | D::LargeUtf8 | D::Utf8View => cast(&text(), data_type).unwrap(),
        D::Binary | D::LargeBinary | D::BinaryView => {
            cast(&cast(&text(), &D::Binary).unwrap(), data_type).unwrap()
        }
        D::Boolean => {
            let numbers = numbers.as_any().downcast_ref::<Int64Array>().unwrap();
            Arc::new(
                numbers
                    .iter()
                    .map(|n| n.map(|n| n % 2 == 0))
                    .collect::<arrow::array::BooleanArray>(),
            )
        }
        D::Date32 => cast(&cast(&numbers, &D::Int32).unwrap(), data_type).unwrap(),
        // Whole days, as the type requires.
        D::Date64 => {
            let numbers = numbers.as_any().downcast_ref::<Int64Array>().unwrap();
            let millis: ArrayRef =
                Arc::new(numbers.unary::<_, arrow::datatypes::Int64Type>(|n| n * 86_400_000));
            cast(&millis, data_type).unwrap()
        }
        // The same moments in all units.
        D::Timestamp(_, zone) => {
            let seconds = cast(&numbers, &D::Timestamp(TimeUnit::Second, zone.clone())).unwrap();
            cast(&seconds, data_type).unwrap()
        }
        _ => cast(&numbers, data_type).unwrap(),
    }
}

struct Case {
    seed: u64,
    /// The types of the key columns of both tables.
    types: Vec<(DataType, DataType)>,
    sql: String,
    partitions: usize,
    batch_size: usize,
    /// The tables, as their formats and rows.
    tables: [(&'static str, RecordBatch); 2],
    /// Which tables have an index.
    indexed: [bool; 2],
    /// The number of parts of the indexes, and the size of the largest one that is used as a whole in a cluster.
    parts: u32,
    most_bytes: u64,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let families = families();
        let keys = *random.of(&[1, 1, 1, 1, 2, 2, 3]);
        let types: Vec<_> = (0..keys)
            .map(|_| {
                let family = random.of(&families);
                (random.of(family).clone(), random.of(family).clone())
            })
            .collect();
        let left_types: Vec<_> = types.iter().map(|(left, _)| left.clone()).collect();
        let right_types: Vec<_> = types.iter().map(|(_, right)| right.clone()).collect();
        let domain = *random.of(&[1, 5, 40, 100]);
        let tables = [left_types, right_types].map(|types| {
            let rows = *random.of(&[0, 1, 10, 100, 500]);
            let rows = if domain == 1 { rows.min(100) } else { rows };
            (*random.of(&["parquet", "arrow"]), table(&types, rows, domain, &mut random))
        });
        let sql = sql(keys, &mut random);
        let indexed = *random.of(&[[true, false], [false, true], [true, true]]);
        let (partitions, batch_size) = (random.below(8) as usize + 1, *random.of(&[3, 64, 8192]));
        let (parts, most_bytes) = (*random.of(&[1, 2, 3, 5, 16]), *random.of(&[0, u64::MAX]));
        Self { seed, types, sql, partitions, batch_size, tables, indexed, parts, most_bytes }
    }
}

fn table(types: &[DataType], rows: u64, domain: u64, random: &mut Random) -> RecordBatch {
    let nulls = *random.of(&[0, 2, 10]);
    let mut fields =
        vec![Field::new("id", DataType::Int64, false), Field::new("v", DataType::Int64, true)];
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..rows as i64)),
        Arc::new(
            (0..rows)
                .map(|_| (!random.one_in(9)).then(|| random.below(20) as i64))
                .collect::<Int64Array>(),
        ),
    ];
    for (at, data_type) in types.iter().enumerate() {
        // Negative numbers only where the type has them.
        let least =
            if data_type.is_unsigned_integer() || matches!(data_type, DataType::Dictionary(..)) {
                0
            } else {
                -20
            };
        let numbers: Int64Array = (0..rows)
            .map(|_| {
                (nulls == 0 || !random.one_in(nulls)).then(|| random.below(domain) as i64 + least)
            })
            .collect();
        columns.push(column(&numbers, data_type));
        fields.push(Field::new(format!("k{at}"), data_type.clone(), nulls > 0 || random.one_in(2)));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn sql(keys: usize, random: &mut Random) -> String {
    let mut on: Vec<_> = (0..keys).map(|at| format!("l.k{at} = r.k{at}")).collect();
    let mut sources = ["l".to_owned(), "r".to_owned()];
    if random.one_in(5) {
        // DataFusion takes what follows `FROM`, up to the end, for one operand.
        on.iter_mut().for_each(|on| *on = format!("({})", on.replace('=', "IS NOT DISTINCT FROM")));
    }
    if random.one_in(3) {
        on.push((*random.of(&["l.v < r.v", "l.v + r.v > 12", "l.id % 3 = r.id % 2"])).to_owned());
    }
    let on = on.join(" AND ");
    for (at, name) in ["l", "r"].iter().enumerate() {
        if random.one_in(3) {
            sources[at] =
                format!("(SELECT * FROM {name} WHERE v > {}) AS {name}", random.below(15));
        } else if random.one_in(4) {
            sources[at] = format!("(SELECT *, v + 1 AS w FROM {name}) AS {name}");
        }
    }
    let [left, right] = sources;
    let kind = *random.of(&[
        "JOIN",
        "LEFT JOIN",
        "RIGHT JOIN",
        "FULL JOIN",
        "LEFT SEMI JOIN",
        "LEFT ANTI JOIN",
        "RIGHT SEMI JOIN",
        "RIGHT ANTI JOIN",
        "EXISTS",
        "NOT EXISTS",
        "INTERSECT",
        "EXCEPT",
        "THREE",
        "AGGREGATE",
    ]);
    let keys =
        |table: &str| (0..keys).map(|at| format!("{table}.k{at}")).collect::<Vec<_>>().join(", ");
    match kind {
        "EXISTS" => format!(
            "SELECT * FROM {left} WHERE l.v > 10 OR EXISTS (SELECT 1 FROM {right} WHERE {on})"
        ),
        "NOT EXISTS" => format!(
            "SELECT l.id FROM {left} WHERE NOT EXISTS (SELECT 1 FROM {right} WHERE {on}) OR l.v = 3"
        ),
        "INTERSECT" | "EXCEPT" => {
            format!("SELECT {} FROM {left} {kind} SELECT {} FROM {right}", keys("l"), keys("r"))
        }
        "THREE" => {
            let outer = *random.of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
            format!(
                "SELECT l.id, r.id, x.id FROM {left} {outer} {right} ON {on} JOIN l AS x ON x.k0 = r.k0 \
                 WHERE l.v > {} AND x.id % 2 = 0",
                random.below(10)
            )
        }
        "AGGREGATE" => format!(
            "SELECT l.v, count(*), min(r.id) FROM {left} JOIN {right} ON {on} WHERE l.id > 3 GROUP BY l.v \
             ORDER BY l.v LIMIT 4"
        ),
        kind => {
            let columns = match kind {
                "LEFT SEMI JOIN" | "LEFT ANTI JOIN" => *random.of(&["*", "l.id", "count(*)"]),
                "RIGHT SEMI JOIN" | "RIGHT ANTI JOIN" => *random.of(&["*", "r.id", "count(*)"]),
                _ => *random.of(&[
                    "*",
                    "l.id, r.id",
                    "count(*)",
                    "r.v, l.k0",
                    "sum(l.v), count(r.k0)",
                ]),
            };
            format!("SELECT {columns} FROM {left} {kind} {right} ON {on}")
        }
    }
}

fn write(path: &Path, batch: &RecordBatch) {
    let file = std::fs::File::create(path).unwrap();
    if path.extension().unwrap() == "parquet" {
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    } else {
        let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
    }
}

/// Returns the rows as texts, in a fixed order.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::new().with_null("null");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            rows.push(
                columns
                    .iter()
                    .map(|column| column.value(row).to_string())
                    .collect::<Vec<_>>()
                    .join("|"),
            );
        }
    }
    rows.sort_unstable();
    rows
}

/// Returns the rows of the answer, and whether an index was used. With a root, the plan is made for a cluster, and sent
/// to another process.
async fn answer(
    registry: &IndexRegistry,
    case: &Case,
    paths: &[String; 2],
    root: Option<&IndexRoot>,
) -> Result<(Vec<String>, bool), String> {
    let config = SessionConfig::new()
        .with_target_partitions(case.partitions)
        .with_batch_size(case.batch_size);
    let state = match root {
        Some(_) => {
            let state = SessionStateBuilder::new().with_config(config).with_default_features();
            cluster_session_state(registry, case.most_bytes, state.build())
        }
        None => session_state_with(registry, config),
    };
    let context = SessionContext::new_with_state(state);
    let indexes = if root.is_some() { Vec::new() } else { registry.indexes() };
    for (name, path) in ["l", "r"].iter().zip(paths) {
        let format = icefield_sql::index::format::Format::of_source(path).unwrap();
        let table = format.table(&context.state(), std::slice::from_ref(path)).await.unwrap();
        // In some cases the index itself is the table.
        let index = indexes.iter().find(|index| index.stamp().files[0].path == Path::new(path));
        match index.filter(|_| case.seed.is_multiple_of(4)) {
            Some(index) => {
                let fields = table.schema();
                let names: Vec<_> =
                    fields.fields().iter().map(|field| field.name().as_str()).collect();
                let rows =
                    context.read_table(Arc::new(IndexTable::new(Arc::clone(index)))).unwrap();
                context.register_table(*name, rows.select_columns(&names).unwrap().into_view())
            }
            None => context.register_table(*name, table),
        }
        .unwrap();
    }
    let frame = context.sql(&case.sql).await.map_err(|error| error.to_string())?;
    let mut plan = frame.create_physical_plan().await.map_err(|error| error.to_string())?;
    if let Some(root) = root {
        let codec = IndexCodec::new(root.clone(), Arc::new(DefaultPhysicalExtensionCodec {}));
        let bytes = physical_plan_to_bytes_with_extension_codec(plan, &codec)
            .map_err(|error| error.to_string())?;
        // Not the process that has made the plan.
        let root = IndexRoot::new(Path::new(&paths[0]).parent().unwrap(), true).unwrap();
        let codec = IndexCodec::new(root, Arc::new(DefaultPhysicalExtensionCodec {}));
        let context = context.task_ctx();
        plan = physical_plan_from_bytes_with_extension_codec(&bytes, &context, &codec)
            .map_err(|error| error.to_string())?;
    }
    let used = displayable(plan.as_ref()).indent(false).to_string().contains("IndexJoinExec");
    let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await;
    Ok((rows(&batches.map_err(|error| error.to_string())?), used))
}

/// Writes a case and its answer for another engine, if the answer has only integers.
fn dump(case: &Case, rows: &[String]) {
    const INTEGERS: [&str; 8] =
        ["l.id", "r.id", "x.id", "l.v", "count(*)", "min(r.id)", "sum(l.v)", "count(r.k0)"];
    let Ok(directory) = std::env::var("ICEFIELD_DUMP") else { return };
    let (columns, joined) = case.sql.strip_prefix("SELECT ").unwrap().split_once(" FROM ").unwrap();
    if !columns.split(", ").all(|column| INTEGERS.contains(&column)) {
        return;
    }
    // The other engine has these joins for the left side only, and calls them by these names.
    let mut joined = joined.to_owned();
    for kind in ["SEMI JOIN", "ANTI JOIN"] {
        joined = joined.replace(&format!("LEFT {kind}"), kind);
        if let Some((left, rest)) = joined.split_once(&format!(" RIGHT {kind} ")) {
            let (right, on) = rest.split_once(" ON ").unwrap();
            joined = format!("{right} {kind} {left} ON {on}");
        }
    }
    let directory = Path::new(&directory).join(case.seed.to_string());
    std::fs::create_dir_all(&directory).unwrap();
    for (name, (_, batch)) in ["l", "r"].iter().zip(&case.tables) {
        write(&directory.join(format!("{name}.parquet")), batch);
    }
    std::fs::write(directory.join("case.sql"), format!("SELECT {columns} FROM {joined}")).unwrap();
    std::fs::write(directory.join("rows.txt"), rows.join("\n")).unwrap();
}

/// Runs a case; returns whether an index was used.
async fn run(case: &Case) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let registry = IndexRegistry::default();
    let mut paths = [String::new(), String::new()];
    for (at, (format, batch)) in case.tables.iter().enumerate() {
        let path = directory.path().join(format!("table {at}.{format}"));
        write(&path, batch);
        paths[at] = path.to_str().unwrap().to_owned();
        if case.indexed[at] {
            let target = directory.path().join(format!("{at}.ice"));
            let keys = (0..case.types.len()).map(|at| format!("k{at}")).collect();
            let mut options =
                BuildOptions::new(vec![paths[at].clone()], keys, target.clone()).unwrap();
            options.include = vec!["*".to_owned()];
            options.parts = case.parts;
            build(&options, &Quiet).await.unwrap();
            registry.open(&target, false).unwrap();
        }
    }
    let expected = answer(&IndexRegistry::default(), case, &paths, None).await;
    let root = IndexRoot::new(directory.path(), false).unwrap();
    let (registry, root) = match case.seed % 4 {
        1 => (IndexRegistry::below(root.clone()), Some(&root)),
        _ => (registry, None),
    };
    let found = answer(&registry, case, &paths, root).await;
    let what = || {
        format!(
            "seed {}{}, {} parts: {} with keys {:?}, {:?}",
            case.seed,
            if root.is_some() { " (cluster)" } else { "" },
            case.parts,
            case.sql,
            case.types,
            registry.take_decisions()
        )
    };
    match (expected, found) {
        (Ok((expected, _)), Ok((found, used))) => {
            if used {
                dump(case, &found);
            }
            assert!(
                expected == found,
                "{}:\n{}\n\ninstead of\n\n{}",
                what(),
                found.join("\n"),
                expected.join("\n")
            );
            used
        }
        (Err(_), Err(_)) => false,
        // DataFusion does not join by some types, which indexes have no difficulty with.
        (Err(error), Ok(_)) if error.contains("Internal error: Unsupported type") => false,
        // Joins that use no index may run in another order, in which DataFusion refuses some types of keys.
        (Ok(_), Err(error)) if error.contains("Unsupported type for ArrayMap") => false,
        (Ok(_), Err(error)) => panic!("{}: {error}", what()),
        (Err(error), Ok(_)) => panic!("{}: no error, instead of {error}", what()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_those_of_other_joins() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let (cases, first) = (number("ICEFIELD_CASES", 200), number("ICEFIELD_SEED", 1));
    let mut used = 0;
    for seed in first..first + cases {
        used += u64::from(run(&Case::new(seed)).await);
    }
    println!("{used} of {cases} cases used an index");
    assert!(used * 10 >= cases * 6, "{used} of {cases} cases used an index");
}
