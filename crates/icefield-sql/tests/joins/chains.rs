//! Joins of several tables: `b` names rows of `a`, and `c` rows of `b`, as orders name customers, and lines orders. `a`
//! and `b` have indexes. `d` is small and has none.

use crate::*;

/// Returns keys of rows: dense and ascending in half of the cases.
fn keys(rows: u64, random: &mut Random) -> Int64Array {
    let form = random.below(8);
    let mut next = -5;
    (0..rows)
        .map(|at| {
            next += match form {
                0..4 => 1 + i64::from(random.one_in(3)),
                // The same key again, and keys that are not dense.
                4 => random.below(2) as i64,
                5 => 1 + random.below(100) as i64,
                _ => 1,
            };
            match form {
                6 => Some((at * 7 % rows.max(1)) as i64),
                7 => (!random.one_in(5)).then_some(next),
                _ => Some(next),
            }
        })
        .collect()
}

fn numbers(rows: u64, below: u64, random: &mut Random) -> Int64Array {
    (0..rows).map(|_| (!random.one_in(15)).then(|| random.below(below) as i64 - 5)).collect()
}

fn batch(columns: Vec<(&str, Int64Array)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, column)| (name, Arc::new(column) as ArrayRef));
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

const CHAIN: &str = "a JOIN b ON a.ka = b.fa JOIN c ON b.kb = c.fb";

fn sql(random: &mut Random) -> String {
    let (x, y) = (random.below(20), random.below(20));
    let columns = *random.of(&["*", "c.id, a.va, b.vb", "count(*)", "b.vb, c.id, a.ka"]);
    match random.below(14) {
        0 => format!("SELECT {columns} FROM {CHAIN}"),
        1 => format!("SELECT {columns} FROM {CHAIN} WHERE a.va > {x} AND b.vb < {y}"),
        2 => format!(
            "SELECT {columns} FROM {CHAIN} JOIN d ON a.nation = d.id WHERE d.region = {}",
            x % 3
        ),
        3 => format!(
            "SELECT c.w, count(*), sum(a.va) FROM c JOIN b ON b.kb = c.fb JOIN a ON a.ka = b.fa \
             JOIN d ON a.nation = d.id WHERE d.region = 1 AND b.vb > {} GROUP BY c.w",
            x / 2
        ),
        4 => format!(
            "SELECT kb, vb FROM b WHERE EXISTS (SELECT * FROM c WHERE c.fb = b.kb AND c.w > {x}) AND vb < {y}"
        ),
        5 => "SELECT a.ka, count(b.kb) FROM a LEFT JOIN b ON a.ka = b.fa GROUP BY a.ka".to_owned(),
        6 => format!(
            "SELECT b.kb, c.w, a.va FROM c LEFT JOIN b ON c.fb = b.kb LEFT JOIN a ON b.fa = a.ka \
             WHERE a.va IS NULL OR a.va > {x}"
        ),
        7 => format!(
            "SELECT c.id FROM c JOIN a ON c.w = a.ka WHERE a.va < {y} AND NOT EXISTS \
             (SELECT * FROM b WHERE b.kb = c.fb AND b.vb > {x})"
        ),
        8 => {
            format!("SELECT c.id, b.vb FROM {CHAIN} ORDER BY b.vb DESC, c.id, a.va, b.kb LIMIT {y}")
        }
        9 => format!(
            "SELECT c.id, a.va FROM {CHAIN} WHERE b.kb IN (SELECT fb FROM c GROUP BY fb HAVING sum(w) > {x})"
        ),
        10 => format!("SELECT {columns} FROM {CHAIN} AND a.va + b.vb > c.w + {x} WHERE a.va > 2"),
        11 | 12 => format!(
            "SELECT {columns} FROM c JOIN a ON c.w = a.ka JOIN b ON c.fb = b.kb WHERE a.va > {x} AND b.vb < {y}"
        ),
        _ => "WITH RECURSIVE t AS (SELECT CAST(1 AS BIGINT) AS k, 0 AS n UNION ALL \
              SELECT a.va AS k, t.n + 1 AS n FROM t JOIN c ON c.id = t.k JOIN b ON b.kb = c.fb \
              JOIN a ON a.ka = b.fa WHERE t.n < 4) SELECT * FROM t"
            .to_owned(),
    }
}

async fn answer(
    registry: &IndexRegistry,
    directory: &Path,
    sql: &str,
    config: SessionConfig,
) -> (Vec<String>, String) {
    let context = SessionContext::new_with_state(session_state_with(registry, config));
    for name in ["a", "b", "c", "d"] {
        let path = directory.join(format!("{name}.parquet")).display().to_string();
        context.register_parquet(name, &path, Default::default()).await.unwrap();
    }
    // A scan of Arrow files does not evaluate the filters of keys, so the joins do.
    let path = directory.join("c.arrow");
    if path.exists() {
        context.deregister_table("c").unwrap();
        let path = path.display().to_string();
        context.register_arrow("c", &path, Default::default()).await.unwrap();
    }
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let text = displayable(plan.as_ref()).indent(false).to_string();
    let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await;
    (rows(&batches.unwrap_or_else(|error| panic!("{sql}: {error}\n{text}"))), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chains_return_the_rows_of_other_joins() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let (cases, first) = (number("ICEFIELD_CASES", 200), number("ICEFIELD_SEED", 1));
    let (mut used, mut moved, mut filtered) = (0, 0, 0);
    for seed in first..first + cases {
        let mut random = Random(seed ^ 0xc4a1);
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (of_a, of_b, of_c) = (
            *random.of(&[0, 1, 30, 300]),
            *random.of(&[1, 50, 400]),
            *random.of(&[0, 20, 500, 3000]),
        );
        let ids = |rows: u64| Int64Array::from_iter_values(0..rows as i64);
        let tables = [
            batch(vec![
                ("ka", keys(of_a, &mut random)),
                ("nation", numbers(of_a, 12, &mut random)),
                ("va", numbers(of_a, 25, &mut random)),
            ]),
            batch(vec![
                ("kb", keys(of_b, &mut random)),
                ("fa", numbers(of_b, of_a + 10, &mut random)),
                ("vb", numbers(of_b, 25, &mut random)),
            ]),
            batch(vec![
                ("id", ids(of_c)),
                ("fb", numbers(of_c, of_b + 10, &mut random)),
                ("w", numbers(of_c, 25, &mut random)),
            ]),
            batch(vec![("id", ids(6)), ("region", numbers(6, 9, &mut random))]),
        ];
        for (name, table) in ["a", "b", "c", "d"].iter().zip(&tables) {
            write(&directory.join(format!("{name}.parquet")), table);
        }
        if seed.is_multiple_of(2) {
            write(&directory.join("c.arrow"), &tables[2]);
        }
        let registry = IndexRegistry::default();
        for (name, key) in [("a", "ka"), ("b", "kb")] {
            let source = directory.join(format!("{name}.parquet")).display().to_string();
            let target = directory.join(format!("{name}.ice"));
            let mut options =
                BuildOptions::new(vec![source], vec![key.to_owned()], target.clone()).unwrap();
            options.include = vec!["*".to_owned()];
            build(&options, &Quiet).await.unwrap();
            registry.open(&target, false).unwrap();
        }
        let sql = sql(&mut random);
        let config = SessionConfig::new()
            .with_target_partitions(random.below(4) as usize + 1)
            .with_batch_size(*random.of(&[3, 64, 8192]));
        let none = IndexRegistry::default();
        let (expected, _) = answer(&none, directory, &sql, config.clone()).await;
        let (found, plan) = answer(&registry, directory, &sql, config).await;
        let decisions = registry.take_decisions();
        assert!(
            found == expected,
            "seed {seed}: {sql}\n{decisions:?}\n{plan}\n{}\n\ninstead of\n\n{}",
            found.join("\n"),
            expected.join("\n")
        );
        used += u64::from(plan.contains("IndexJoinExec"));
        moved += u64::from(decisions.iter().any(|one| one.contains("before the joins")));
        filtered += u64::from(plan.contains("key_filters"));
    }
    println!(
        "of {cases} cases, {used} used an index, {moved} in another order, {filtered} with filters of keys"
    );
    assert!(used * 10 >= cases * 7 && moved * 10 >= cases && filtered * 50 >= cases);
}
