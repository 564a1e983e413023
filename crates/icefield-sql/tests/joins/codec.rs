//! Plans as bytes: what other processes receive.

use std::path::Path;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::physical_plan::DefaultPhysicalExtensionCodec;
use icefield_sql::index::build::{BuildOptions, Quiet, build};
use icefield_sql::{IndexCodec, IndexReference, IndexRegistry, IndexRoot, cluster_session_state};

use crate::Random;

/// Joins whose plans have all parts that the codec knows.
const QUERIES: [&str; 2] = [
    "SELECT l.v, r.v FROM l LEFT JOIN r ON l.k = r.k AND l.t = r.t AND l.v < r.v WHERE l.v > 3",
    "SELECT count(*) FROM r JOIN l ON l.k = r.k AND l.t = r.t",
];

async fn context(directory: &Path) -> Result<(SessionContext, IndexRoot)> {
    for table in ["l", "r"] {
        let rows: String =
            (0..100).map(|at| format!("{},text {},{at}\n", at % 7, at % 3)).collect();
        std::fs::write(directory.join(format!("{table}.csv")), format!("k,t,v\n{rows}"))?;
    }
    let place = |name: &str| directory.join(name).display().to_string();
    let keys = vec!["k".to_owned(), "t".to_owned()];
    let mut options =
        BuildOptions::new(vec![place("l.csv")], keys, directory.join("indexes/l.ice"))?;
    options.include = vec!["*".to_owned()];
    std::fs::create_dir(directory.join("indexes"))?;
    build(&options, &Quiet).await?;
    let root = IndexRoot::new(&directory.join("indexes"), false)?;
    let state = SessionStateBuilder::new()
        .with_config(SessionConfig::new().with_target_partitions(3))
        .with_default_features()
        .build();
    let state = cluster_session_state(&IndexRegistry::below(root.clone()), 0, state);
    let context = SessionContext::new_with_state(state);
    for table in ["l", "r"] {
        let path = place(&format!("{table}.csv"));
        context.register_csv(table, path, CsvReadOptions::default()).await?;
    }
    Ok((context, root))
}

fn codec(root: &IndexRoot) -> IndexCodec {
    IndexCodec::new(root.clone(), Arc::new(DefaultPhysicalExtensionCodec {}))
}

fn decode(
    bytes: &[u8],
    context: &SessionContext,
    root: &IndexRoot,
) -> Result<Arc<dyn ExecutionPlan>> {
    physical_plan_from_bytes_with_extension_codec(bytes, &context.task_ctx(), &codec(root))
}

#[tokio::test]
async fn damaged_bytes_are_an_error() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (context, root) = context(directory.path()).await?;
    let mut random = Random(5);
    for sql in QUERIES {
        let plan = context.sql(sql).await?.create_physical_plan().await?;
        let bytes = physical_plan_to_bytes_with_extension_codec(plan, &codec(&root))?;
        decode(&bytes, &context, &root)?;
        let ours = bytes.windows(13).position(|part| part == b"icefield-join").unwrap();
        let mut errors = 0;
        for _ in 0..2000 {
            let mut damaged = bytes.to_vec();
            for _ in 0..=random.below(3) {
                let at = ours + random.below((bytes.len() - ours) as u64) as usize;
                damaged[at] = random.next() as u8;
            }
            // A changed plan may be another valid one.
            errors += usize::from(decode(&damaged, &context, &root).is_err());
        }
        println!("{errors} of 2000 damaged plans are errors");
        assert!(errors > 200, "{errors}");
    }
    Ok(())
}

/// The value of a subquery is not part of the bytes of an operator, so such a condition is not one of an index join.
#[tokio::test]
async fn values_of_subqueries_stay_where_they_are() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (context, root) = context(directory.path()).await?;
    let plain = SessionContext::new();
    for table in ["l", "r"] {
        let path = directory.path().join(format!("{table}.csv")).display().to_string();
        plain.register_csv(table, path, CsvReadOptions::default()).await?;
    }
    for condition in [
        "WHERE l.v > (SELECT avg(v) FROM r)",
        "AND l.v + r.v > (SELECT avg(v) FROM r)",
        "WHERE l.v > (SELECT max(v) FROM r) - 50 AND r.v < 20",
    ] {
        let sql = format!("SELECT count(*) FROM r JOIN l ON l.k = r.k AND l.t = r.t {condition}");
        let plan = context.sql(&sql).await?.create_physical_plan().await?;
        let bytes = physical_plan_to_bytes_with_extension_codec(plan, &codec(&root))?;
        let plan = decode(&bytes, &context, &root)?;
        let found = datafusion::physical_plan::collect(plan, context.task_ctx()).await?;
        let expected = plain.sql(&sql).await?.collect().await?;
        assert_eq!(crate::rows(&found), crate::rows(&expected), "{sql}");
    }
    Ok(())
}

#[tokio::test]
async fn indexes_outside_the_root_are_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (_, root) = context(directory.path()).await?;
    let index = root.indexes().0.remove(0);
    let good = root.reference(&index)?;
    root.open(&good)?;
    let open = |path: &str| {
        let reference = IndexReference { path: path.to_owned(), ..good.clone() };
        root.open(&reference).unwrap_err().to_string()
    };
    let whole = directory.path().join("indexes/l.ice").display().to_string();
    for path in ["../indexes/l.ice", "", ".", "/", &whole, "l.ice/../l.ice", "l.ice/.."] {
        assert!(open(path).contains("leaves the root"), "{path}: {}", open(path));
    }
    assert!(open("missing.ice").contains("missing.ice"));
    let outside = directory.path().join("outside.ice");
    std::fs::rename(directory.path().join("indexes/l.ice"), &outside)?;
    std::os::unix::fs::symlink(&outside, directory.path().join("indexes/link.ice"))?;
    assert!(open("link.ice").contains("leaves the root"), "{}", open("link.ice"));
    // It is gone, but still open here.
    root.open(&good).unwrap_err();
    Ok(())
}
