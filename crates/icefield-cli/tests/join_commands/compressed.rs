//! Joins of Parquet files with every supported compression.

use std::fs::{self, File};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterVersion};

use super::relations::{build, check_all, count, csv_file, names_column};
use crate::support::Place;

/// Files made by PyArrow from the rows of [`rows`], with row groups of 250 rows and small pages, some
/// dictionary-encoded. The pages of the first file have version 1, compressed as a whole; those of the second have
/// version 2, with uncompressed levels.
const ZSTD: [&[u8]; 2] =
    [include_bytes!("zstd-pages-1.parquet"), include_bytes!("zstd-pages-2.parquet")];

fn key(row: i64) -> Option<i64> {
    (row % 11 != 0).then_some(row * 7 % 101)
}

fn rows() -> Vec<Vec<String>> {
    let key = |row| key(row).map_or(String::new(), |key| key.to_string());
    (0..600).map(|row| vec![key(row), format!("name {}", row % 37)]).collect()
}

fn written(place: &Place, name: &str, codec: Compression, version: WriterVersion) {
    let keys: ArrayRef = Arc::new((0..600).map(key).collect::<Int64Array>());
    let records = RecordBatch::try_from_iter([("k", keys), ("a", names_column(&rows()))]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_writer_version(version)
        .set_max_row_group_row_count(Some(250));
    let file = File::create(place.path(name)).unwrap();
    let mut writer =
        ArrowWriter::try_new(file, records.schema(), Some(properties.build())).unwrap();
    writer.write(&records).unwrap();
    writer.close().unwrap();
}

#[test]
fn compressed_files_join() {
    let place = Place::new();
    let others: Vec<Vec<String>> =
        (0..80).map(|row| vec![(row * 3 % 120).to_string(), format!("other {row}")]).collect();
    csv_file(&place, "b.csv", "k,b", &others);
    let (mut names, mut pairs) = (Vec::new(), 0);
    for (name, bytes) in ["zstd-1.parquet", "zstd-2.parquet"].into_iter().zip(ZSTD) {
        fs::write(place.path(name), bytes).unwrap();
        names.push(name.to_owned());
    }
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
    ];
    for codec in codecs {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let name = format!("{}.parquet", names.len());
            written(&place, &name, codec, version);
            names.push(name);
        }
    }
    for name in &names {
        pairs = check_all(&place, name, "b.csv", [&rows(), &others]);
        build(&place, &[name, "--on", "k", "--index", "y.ice", "--replace"]);
        assert_eq!(count(&place, &["b.csv", "--index", "y.ice"]), pairs as u64, "{name}");
    }
    println!("{} files, {pairs} pairs each", names.len());
    assert!(names.len() == 12 && pairs > 300);
}

#[test]
fn damaged_zstd_is_an_error() {
    let place = Place::new();
    csv_file(&place, "b.csv", "k,b", &[vec!["1".into(), "x".into()]]);
    build(&place, &["b.csv", "--on", "k", "--index", "b.ice"]);
    let mut failed = 0;
    for bytes in ZSTD {
        // Damages one byte of the pages at a time. The footer at the end of the file stays intact.
        for at in (4..bytes.len() - 1000).step_by(97) {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 0xFF;
            fs::write(place.path("a.parquet"), bytes).unwrap();
            let ran = place.run(&["join", "run", "a.parquet", "--index", "b.ice", "--on", "k"]);
            assert!(matches!(ran.status, Some(0 | 1)), "byte {at}: {:?} {}", ran.status, ran.err);
            failed += u32::from(ran.status == Some(1));
        }
    }
    println!("{failed} damaged files were refused");
    assert!(failed > 10);
}
