//! A scheduler and three executors, as processes of their own, answer a stock client's queries as one process does.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use icefield_sql::index::build::{BuildOptions, Quiet, build, update};

/// Queries whose joins use the index of orders; the kinds of rows that they return differ.
const QUERIES: [&str; 9] = [
    "SELECT count(*), sum(price), sum(amount) FROM items JOIN orders ON item_order = id",
    "SELECT id, price, item, amount FROM orders JOIN items ON id = item_order WHERE price % 7 = 3 AND amount > 20",
    "SELECT id, item FROM orders LEFT JOIN items ON id = item_order AND amount > price % 40",
    "SELECT item, price FROM orders RIGHT JOIN items ON id = item_order",
    "SELECT item, item_order, id FROM orders FULL JOIN items ON id = item_order",
    "SELECT id, price FROM orders WHERE id IN (SELECT item_order FROM items WHERE amount < 5)",
    "SELECT id, price FROM orders WHERE NOT EXISTS (SELECT 1 FROM items WHERE item_order = id)",
    "SELECT count(*) FROM items WHERE NOT EXISTS (SELECT 1 FROM orders WHERE item_order = id)",
    "SELECT customer, count(*), count(item) FROM orders LEFT JOIN items ON id = item_order GROUP BY customer",
];

/// Writes the tables: 12,000 orders times `scale` in two files, of which every third has items, in six files.
async fn generate(directory: &Path, scale: u32) -> Result<()> {
    let context = SessionContext::new();
    let write = async |sql: String, path: String| -> Result<()> {
        let place = directory.join(path).display().to_string();
        context.sql(&format!("COPY ({sql}) TO '{place}'")).await?.collect().await?;
        Ok(())
    };
    for file in 0..2 {
        let rows = 6000 * scale;
        let (first, last) = (file * rows, file * rows + rows - 1);
        let sql = format!(
            "SELECT value AS id, value * 31 % 1009 AS price, 'customer ' || (value % 50) AS customer \
             FROM generate_series({first}, {last})"
        );
        write(sql, format!("orders/{file}.parquet")).await?;
    }
    for file in 0..6 {
        let rows = 5000 * scale;
        let (first, last) = (file * rows, file * rows + rows - 1);
        let sql = format!(
            "SELECT value AS item, CASE WHEN value % 11 = 0 THEN NULL ELSE value * 3 % {} END AS item_order, \
             value * 7 % 50 AS amount FROM generate_series({first}, {last})",
            15_000 * scale
        );
        write(sql, format!("items/{file}.parquet")).await?;
    }
    Ok(())
}

async fn build_index(directory: &Path, target: &Path, parts: u32) -> Result<()> {
    let orders = directory.join("orders").display().to_string();
    let mut options = BuildOptions::new(vec![orders], vec!["id".to_owned()], target.to_owned())?;
    options.include = vec!["*".to_owned()];
    options.parts = parts;
    build(&options, &Quiet).await?;
    Ok(())
}

/// How long a process may take to do anything.
const LONGEST: Duration = Duration::from_secs(60);

/// A process, killed at the end.
struct Process {
    child: Child,
    log: Receiver<String>,
}

impl Process {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .args(["--log", "info"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, log) = channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(|line| line.ok()).all(|line| send.send(line).is_ok())
        });
        Self { child, log }
    }

    /// Waits until a line of the log has this text; returns the lines until then.
    fn wait_for(&self, text: &str) -> Vec<String> {
        let start = Instant::now();
        let mut lines = Vec::new();
        while let Ok(line) = self.log.recv_timeout(LONGEST.saturating_sub(start.elapsed())) {
            lines.push(line);
            if lines.last().unwrap().contains(text) {
                return lines;
            }
        }
        panic!("no `{text}` in the log:\n{}", lines.join("\n"));
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scheduler and executors.
struct Cluster {
    scheduler: Process,
    executors: Vec<Process>,
    port: u16,
}

/// Returns ports without a listener.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl Cluster {
    /// Starts a cluster whose executors may have another root than the scheduler.
    fn start(root: &Path, roots_of_executors: [&Path; 3]) -> Self {
        let [port, ports @ ..] = free_ports::<7>();
        let place = root.to_str().unwrap();
        let port_name = port.to_string();
        let arguments = ["--index-root", place, "--port", &port_name, "--executor-timeout", "4"];
        // Indexes in parts are always distributed.
        let arguments = [&arguments[..], &["--split-above", "0"]].concat();
        let scheduler = Process::start(env!("CARGO_BIN_EXE_icefield-scheduler"), &arguments);
        let scheduler_at = format!("127.0.0.1:{port}");
        let start = Instant::now();
        while TcpStream::connect(&scheduler_at).is_err() {
            assert!(start.elapsed() < LONGEST, "the scheduler does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        let executors = std::iter::zip(ports.chunks(2), roots_of_executors).map(|(ports, root)| {
            let arguments = [
                "--index-root",
                root.to_str().unwrap(),
                "--scheduler",
                &scheduler_at,
                "--port",
                &ports[0].to_string(),
                "--grpc-port",
                &ports[1].to_string(),
                "--threads",
                "2",
            ];
            Process::start(env!("CARGO_BIN_EXE_icefield-executor"), &arguments)
        });
        Self { executors: executors.collect(), scheduler, port }
    }

    /// Returns a session of a stock client.
    async fn client(&self, directory: &Path, partitions: usize) -> SessionContext {
        let context = self.client_of(partitions).await;
        register(&context, directory).await;
        context
    }

    async fn client_of(&self, partitions: usize) -> SessionContext {
        let config = SessionConfig::new_with_ballista().with_target_partitions(partitions);
        let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
        let address = format!("df://127.0.0.1:{}", self.port);
        SessionContext::remote_with_state(&address, state).await.unwrap()
    }
}

async fn register(context: &SessionContext, directory: &Path) {
    for table in ["orders", "items"] {
        let place = directory.join(table).display().to_string();
        let options = datafusion::prelude::ParquetReadOptions::default();
        context.register_parquet(table, &place, options).await.unwrap();
    }
}

/// Returns the rows of an answer, sorted.
async fn rows(context: &SessionContext, sql: &str) -> Result<Vec<String>> {
    let batches = context.sql(sql).await?.collect().await?;
    let table = pretty_format_batches(&batches)?.to_string();
    let mut rows: Vec<_> = table.lines().map(str::to_owned).collect();
    rows.sort_unstable();
    Ok(rows)
}

/// Returns the rows that DataFusion returns in this process, without an index.
async fn expected(directory: &Path, sql: &str) -> Vec<String> {
    let context = SessionContext::new();
    register(&context, directory).await;
    rows(&context, sql).await.unwrap()
}

/// Tables, and a root with the index of orders.
struct Site {
    directory: tempfile::TempDir,
    root: PathBuf,
}

impl Site {
    async fn new() -> Result<Self> {
        Self::with_parts(1, 1).await
    }

    async fn with_parts(parts: u32, scale: u32) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let root = directory.path().join("indexes");
        generate(directory.path(), scale).await?;
        fs::create_dir(&root)?;
        build_index(directory.path(), &root.join("orders.ice"), parts).await?;
        Ok(Self { directory, root })
    }

    fn tables(&self) -> &Path {
        self.directory.path()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_one_process() -> Result<()> {
    let site = Site::new().await?;
    let cluster = Cluster::start(&site.root, [&site.root; 3]);
    for partitions in [1, 2, 8] {
        let client = cluster.client(site.tables(), partitions).await;
        for sql in QUERIES {
            let found = rows(&client, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            let expected = expected(site.tables(), sql).await;
            assert_eq!(found, expected, "{sql} on {partitions} partitions");
            cluster.scheduler.wait_for("side: index orders");
        }
        let plan = rows(&client, &format!("EXPLAIN {}", QUERIES[0])).await?.join("\n");
        assert!(plan.contains("IndexJoinExec: index=orders"), "{plan}");
    }
    // Without the planning for changing conditions, which Ballista does by default.
    let client = cluster.client(site.tables(), 4).await;
    client.sql("SET ballista.planner.adaptive.enabled = false").await?.collect().await?;
    for sql in QUERIES {
        let found = rows(&client, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(found, expected(site.tables(), sql).await, "{sql} with a static plan");
        cluster.scheduler.wait_for("side: index orders");
    }
    let sql = "SELECT count(*) FROM items JOIN orders ON item_order = id WHERE price > (SELECT avg(price) FROM orders)";
    assert_eq!(rows(&client, sql).await?, expected(site.tables(), sql).await);
    assert_one_copy(&cluster, "orders.ice");
    Ok(())
}

/// How many kB of an index each executor has mapped, and its proportional share of these pages.
fn mapped(cluster: &Cluster, index: &str) -> Vec<(u64, u64)> {
    let of_executor = |executor: &Process| {
        let maps = fs::read_to_string(format!("/proc/{}/smaps", executor.child.id())).unwrap();
        let (mut is_index, mut resident, mut proportional) = (false, 0, 0);
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let kilobytes = || second.parse::<u64>().unwrap();
            match first {
                // The first line of a mapping has its range of addresses, and its file at the end.
                _ if !first.ends_with(':') => is_index = line.contains(index),
                "Rss:" if is_index => resident += kilobytes(),
                "Pss:" if is_index => proportional += kilobytes(),
                _ => {}
            }
        }
        (resident, proportional)
    };
    cluster.executors.iter().map(of_executor).collect()
}

/// Asserts that the executors share the memory of an index: the sum of their proportional shares is what one has mapped.
fn assert_one_copy(cluster: &Cluster, index: &str) {
    let mapped = mapped(cluster, index);
    let users = mapped.iter().filter(|(resident, _)| *resident > 0).count();
    let most_resident = mapped.iter().map(|(resident, _)| *resident).max().unwrap();
    let proportional: u64 = mapped.iter().map(|(_, proportional)| *proportional).sum();
    println!(
        "{users} executors use the index: {proportional} kB together, {most_resident} kB mapped by one"
    );
    assert!(users > 1, "one executor did all the work");
    // The scheduler has a share, too. Executors may have touched different pages.
    assert!(proportional <= most_resident * 3 / 2, "{proportional} kB, {most_resident} kB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executors_need_parts_of_a_divided_index() -> Result<()> {
    let site = Site::with_parts(6, 60).await?;
    let cluster = Cluster::start(&site.root, [&site.root; 3]);
    let client = cluster.client(site.tables(), 6).await;
    // An inner join, of which every row of the index with a match is read.
    let sql = "SELECT count(*), sum(price * amount), max(customer) FROM items JOIN orders ON item_order = id";
    assert_eq!(rows(&client, sql).await?, expected(site.tables(), sql).await);
    let plan = rows(&client, &format!("EXPLAIN {sql}")).await?.join("\n");
    assert!(plan.contains("IndexJoinExec") && plan.contains("PartExec"), "{plan}");
    let resident: Vec<u64> =
        mapped(&cluster, "orders.ice").into_iter().map(|(resident, _)| resident).collect();
    let whole = bytes_of(&site.root.join("orders.ice")) / 1024;
    println!("the executors have mapped {resident:?} kB of the {whole} kB of the index");
    assert!(resident.iter().all(|&resident| resident < whole * 2 / 3), "{resident:?} of {whole}");
    assert!(resident.iter().sum::<u64>() < whole * 4 / 3, "{resident:?} of {whole}");
    drop(cluster);

    let site = Site::with_parts(4, 1).await?;
    let cluster = Cluster::start(&site.root, [&site.root; 3]);
    for partitions in [2, 5] {
        let client = cluster.client(site.tables(), partitions).await;
        for sql in QUERIES {
            let found = rows(&client, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(found, expected(site.tables(), sql).await, "{sql}");
            cluster.scheduler.wait_for("side: index orders");
        }
    }
    Ok(())
}

/// Returns the length of the files in the directories of an index.
fn bytes_of(path: &Path) -> u64 {
    let of_entry = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => bytes_of(&entry.path()),
        false => entry.metadata().unwrap().len(),
    };
    fs::read_dir(path).unwrap().map(|entry| of_entry(entry.unwrap())).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_dies() -> Result<()> {
    // Enough pairs that the query runs for a while.
    const SQL: &str = "SELECT count(*), sum(a.amount * price + b.amount) FROM items a \
                       JOIN orders ON a.item_order = id JOIN items b ON a.amount = b.amount";
    let site = Site::new().await?;
    let expected = expected(site.tables(), SQL).await;
    for adaptive in [true, false] {
        let mut cluster = Cluster::start(&site.root, [&site.root; 3]);
        let client = cluster.client(site.tables(), 8).await;
        let set = format!("SET ballista.planner.adaptive.enabled = {adaptive}");
        client.sql(&set).await?.collect().await?;
        assert_eq!(rows(&client, SQL).await?, expected);
        let start = Instant::now();
        assert_eq!(rows(&client, SQL).await?, expected);
        let whole = start.elapsed();
        let second = client.clone();
        let query = tokio::spawn(async move { rows(&second, SQL).await });
        tokio::time::sleep(whole / 3).await;
        assert!(!query.is_finished(), "the query took less than a third of {whole:?}");
        cluster.executors.remove(1).kill();
        match tokio::time::timeout(LONGEST, query).await.expect("an end").unwrap() {
            Ok(found) => assert_eq!(found, expected),
            Err(error) => {
                let error = error.to_string();
                println!("with one executor killed: {error}");
                assert!(error.contains("were lost with an executor; repeat the query"), "{error}");
            }
        }
        assert_eq!(rows(&client, SQL).await?, expected);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_generation_is_an_error() -> Result<()> {
    let site = Site::new().await?;
    // The executors have a copy of the index, as machines without a common file system have.
    let copy = site.tables().join("copy");
    let copied = Command::new("cp").arg("-r").args([&site.root, &copy]).status()?;
    assert!(copied.success());
    let cluster = Cluster::start(&site.root, [&copy; 3]);
    let client = cluster.client(site.tables(), 2).await;
    let sql = QUERIES[0];
    assert_eq!(rows(&client, sql).await?, expected(site.tables(), sql).await);

    // A new file of orders: no index fits, until it is updated.
    let session = SessionContext::new();
    let place = site.tables().join("orders/2.parquet").display().to_string();
    let more =
        "SELECT value AS id, value AS price, 'new' AS customer FROM generate_series(12000, 12500)";
    session.sql(&format!("COPY ({more}) TO '{place}'")).await?.collect().await?;
    let client = cluster.client(site.tables(), 2).await;
    assert_eq!(rows(&client, sql).await?, expected(site.tables(), sql).await);
    cluster.scheduler.wait_for("no index");
    let index = site.root.join("orders.ice");
    update(&index, &[], false, &Quiet).await?.expect("a new state");
    let error = rows(&client, sql).await.unwrap_err().to_string();
    assert!(error.contains("but the query was planned with generation"), "{error}");

    // The former copy is removed, and the new index copied.
    fs::remove_dir_all(&copy)?;
    let copied = Command::new("cp").arg("-r").args([&site.root, &copy]).status()?;
    assert!(copied.success());
    assert_eq!(rows(&client, sql).await?, expected(site.tables(), sql).await);
    cluster.scheduler.wait_for("side: index orders");
    Ok(())
}

/// Measures joins of TPC-H's lineitem and orders, with the indexes `orders.ice` and `parts/orders.ice`, by this number of
/// executors. A command, and not a test: see docs/cluster.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; needs files"]
async fn rows_per_second() -> Result<()> {
    const ROUNDS: usize = 5;
    const QUERIES: [&str; 2] = [
        "SELECT count(*) FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
        "SELECT count(*), sum(o_totalprice) FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
    ];
    let directory = PathBuf::from(std::env::var("ICEFIELD_TPCH").expect("ICEFIELD_TPCH"));
    for root in ["whole", "parts"] {
        let root = directory.join(root);
        let cluster = Cluster::start(&root, [&root; 3]);
        let mut answers = Vec::new();
        for partitions in [1, 2, 4, 8] {
            let client = cluster.client_of(partitions).await;
            for table in ["lineitem", "orders"] {
                let place = directory.join(format!("{table}.parquet")).display().to_string();
                client.register_parquet(table, &place, Default::default()).await?;
            }
            for sql in QUERIES {
                let mut seconds = Vec::new();
                for _ in 0..ROUNDS {
                    let start = Instant::now();
                    answers.push((sql, rows(&client, sql).await?));
                    seconds.push(start.elapsed().as_secs_f64());
                    cluster.scheduler.wait_for("side: index orders");
                }
                seconds.sort_by(f64::total_cmp);
                let root = root.display();
                println!("{root}, {partitions} partitions: {:.3} s: {sql}", seconds[ROUNDS / 2]);
            }
        }
        let is_same = |(sql, rows): &(&str, Vec<String>)| {
            answers.iter().filter(|(other, _)| other == sql).all(|(_, other)| other == rows)
        };
        assert!(answers.iter().all(is_same), "{answers:?}");
        println!("{:?}", mapped(&cluster, "orders.ice"));
    }
    Ok(())
}

#[test]
fn bad_options() {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let (scheduler, executor) =
        (env!("CARGO_BIN_EXE_icefield-scheduler"), env!("CARGO_BIN_EXE_icefield-executor"));
    assert!(run(scheduler, &[]).contains("--index-root"));
    assert!(run(scheduler, &["--index-root", "/no/such"]).contains("/no/such"));
    assert!(run(executor, &["--index-root", "/dev/null"]).contains("not a directory"));
    let message = run(executor, &["--index-root", "/tmp", "--scheduler", "localhost"]);
    assert!(message.contains("a host and a port are expected"), "{message}");
    let message =
        run(executor, &["--index-root", "/tmp", "--scheduler", "127.0.0.1:1", "--wait", "1"]);
    assert!(message.contains("127.0.0.1:1"), "{message}");
}
