//! Shared by the transaction benchmarks.

use crate::prelude::*;

/// Creates rows on all cores: calls `load` for each number below `count`.
pub(super) fn load_all(session: &Session, count: u32, load: impl Fn(u32) + Sync) {
    let threads = session.machine.cores();
    session.machine.run(threads, |thread| {
        part(count as usize, thread, threads).for_each(|number| load(number as u32));
    });
}

/// A benchmark of transactions on loaded tables.
pub(super) trait Benchmark: Sync {
    type Transaction: Copy + Sync;

    /// Returns the number of subscribers or customers.
    fn count(&self) -> u32;

    /// Draws `count` transactions.
    fn draw(&self, session: &Session, seed: u64, count: u64) -> Vec<Self::Transaction>;

    /// Runs a transaction and returns the change of the sum of all balances; `None` if the transaction did not commit.
    fn run(&self, transaction: Self::Transaction) -> Option<i64>;

    /// Checks for partial transactions after a run on `threads` threads that changed the sum of all balances by `net`.
    /// Returns a description of the fault, if there is one.
    fn fault(&mut self, session: &Session, threads: usize, net: i64) -> Outcome<Option<String>>;

    /// Writes a row for each number of threads.
    fn measure(&mut self, session: &mut Session, dist: Option<String>) -> Outcome {
        let design = session.our("dlht")?;
        let each = session.ops(self.count().into());
        for threads in session.threads() {
            let (mut committed, mut net) = (0, 0);
            let mut row = session.row(design, Medium::Memory);
            for round in 0..session.repeat() as u64 {
                let work = self.draw(session, session.args.seed + round, each);
                session.progress(&format!("{}: {threads} threads", session.experiment));
                let (time, parts) = session.machine.run(threads, |thread| {
                    let work = &work[part(work.len(), thread, threads)];
                    let done = work.iter().filter_map(|transaction| self.run(*transaction));
                    done.fold((0_u64, 0), |(count, sum), net| (count + 1, sum + net))
                });
                committed += parts.iter().map(|part| part.0).sum::<u64>();
                net += parts.iter().map(|part| part.1).sum::<i64>();
                row.sample("mops", mops(work.len(), time));
            }
            if let Some(fault) = self.fault(session, threads, net)? {
                session.blame(design, &fault);
            }
            let ops = each * session.repeat() as u64;
            row.at(threads, Batch::None, self.count().into(), ops);
            row.dist.clone_from(&dist);
            row.extra("committed", rounded(committed as f64 / ops as f64));
            session.put(row)?;
        }
        Ok(())
    }
}
