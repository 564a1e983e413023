//! Writes relations to files, joins them with `icefield join`, and computes the same joins by nested loops.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_cast::display::array_value_to_string;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;

use crate::support::{Place, Ran};

/// Writes a Parquet file with three rows per row group.
pub fn parquet(place: &Place, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    let records = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(3)).build();
    let file = File::create(place.path(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, records.schema(), Some(properties)).unwrap();
    writer.write(&records).unwrap();
    writer.close().unwrap();
}

/// Returns the rows of a Parquet file as texts, with null as "".
pub fn parquet_rows(path: &Path) -> (Vec<String>, Vec<Vec<String>>) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let names = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut rows = Vec::new();
    for records in builder.build().unwrap() {
        let records = records.unwrap();
        for row in 0..records.num_rows() {
            let text = |column: &ArrayRef| match column.is_null(row) {
                true => String::new(),
                false => array_value_to_string(column, row).unwrap(),
            };
            rows.push(records.columns().iter().map(text).collect());
        }
    }
    (names, rows)
}

/// Returns the rows of CSV.
fn csv_rows(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let own = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<_>>();
    let names = own(reader.headers().unwrap());
    (names, reader.records().map(|record| own(&record.unwrap())).collect())
}

pub fn ok(place: &Place, args: &[&str]) -> Ran {
    let ran = place.run(args);
    assert_eq!(ran.status, Some(0), "{args:?}: {}", ran.err);
    ran
}

/// Returns the output of `join run`.
pub fn joined(place: &Place, args: &[&str]) -> String {
    ok(place, &[&["join", "run"], args].concat()).out
}

pub fn count(place: &Place, args: &[&str]) -> u64 {
    joined(place, args).trim().parse().unwrap()
}

pub fn build(place: &Place, args: &[&str]) -> String {
    place.ok(&[&["join", "build-index"], args].concat())
}

/// Returns the names of the files in the test's directory.
pub fn names(place: &Place) -> BTreeSet<String> {
    let entries = fs::read_dir(place.dir()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns all pairs of rows with equal keys; an empty key equals nothing.
fn nested_loop(left: &[Vec<String>], right: &[Vec<String>]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (at, row) in left.iter().enumerate() {
        for (other, candidate) in right.iter().enumerate() {
            if !row[0].is_empty() && row[0] == candidate[0] {
                pairs.push((at, other));
            }
        }
    }
    pairs
}

/// Checks every kind of join of two files against nested loops. The left file has the columns k and a, the right one k
/// and b.
pub fn check_all(place: &Place, left: &str, right: &str, rows: [&[Vec<String>]; 2]) -> usize {
    let [left_rows, right_rows] = rows;
    let _ = fs::remove_dir_all(place.path("x.ice"));
    build(place, &[right, "--on", "k", "--index", "x.ice"]);
    let pairs = nested_loop(left_rows, right_rows);
    let run =
        |more: &[&str]| joined(place, &[&[left, "--index", "x.ice", "--on", "k"], more].concat());
    assert_eq!(run(&["--count"]).trim(), pairs.len().to_string(), "{left} {right}");
    assert_eq!(run(&["--verify", "--threads", "1"]).trim(), pairs.len().to_string());
    let matched: BTreeSet<usize> = pairs.iter().map(|(at, _)| *at).collect();
    let with = |wanted: bool| -> Vec<Vec<String>> {
        let rows = left_rows.iter().enumerate();
        rows.filter(|(at, _)| matched.contains(at) == wanted).map(|(_, row)| row.clone()).collect()
    };
    let told = ok(place, &["join", "run", left, "--index", "x.ice", "--on", "k"]).err;
    let counts = format!("{} of them matched, {} pairs", matched.len(), pairs.len());
    assert!(told.contains(&counts), "{left} {right}: {told} where {counts} is right");
    assert_eq!(csv_rows(&run(&["--semi"])).1, with(true), "{left} {right}");
    assert_eq!(csv_rows(&run(&["--anti"])).1, with(false), "{left} {right}");
    let expected: Vec<Vec<String>> = pairs
        .iter()
        .map(|&(at, other)| {
            vec![
                left_rows[at][1].clone(),
                right_rows[other][1].clone(),
                right_rows[other][0].clone(),
            ]
        })
        .collect();
    let select = ["--select", "a,b,right.k"];
    let (names, given) = csv_rows(&run(&select));
    assert_eq!((names, &given), (vec!["a".into(), "b".into(), "k".into()], &expected));
    run(&[&select[..], &["-o", "out.parquet"]].concat());
    assert_eq!(parquet_rows(&place.path("out.parquet")).1, expected, "{left} {right}");
    run(&["--semi", "-o", "out.parquet"]);
    assert_eq!(parquet_rows(&place.path("out.parquet")).1, with(true), "{left} {right}");
    pairs.len()
}

/// Writes rows of two texts as CSV.
pub fn csv_file(place: &Place, name: &str, header: &str, rows: &[Vec<String>]) {
    let lines = rows.iter().map(|row| format!("{}\n", row.join(",")));
    place.file(name, &format!("{header}\n{}", lines.collect::<String>()));
}

pub fn texts(keys: &[Option<i128>], what: &str) -> Vec<Vec<String>> {
    let text = |key: &Option<i128>| key.map_or(String::new(), |key| key.to_string());
    keys.iter().enumerate().map(|(at, key)| vec![text(key), format!("{what}{at}")]).collect()
}

pub fn names_column(rows: &[Vec<String>]) -> ArrayRef {
    Arc::new(rows.iter().map(|row| Some(row[1].as_str())).collect::<StringArray>())
}
