//! The source of a join index, and the rows that a probe finds.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use icefield::{Error, JoinSource, Result};

/// Number of pairs that a build reads between two checks for a stop.
const SOURCE_PIECE: usize = 1 << 16;

/// Two columns as the source of a build, which can be stopped.
pub struct Source<'a> {
    pub keys: &'a [u64],
    /// `None` for the numbers of the rows.
    pub payloads: Option<&'a [u64]>,
    pub stopped: &'a AtomicBool,
}

impl JoinSource for Source<'_> {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        let share = |part: usize| (self.keys.len() as u128 * part as u128 / parts as u128) as usize;
        let (mut first, last) = (share(part), share(part + 1));
        let mut rows = Vec::new();
        while first < last {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(Error::Source { detail: "interrupted".to_owned() });
            }
            let end = last.min(first + SOURCE_PIECE);
            let payloads = match self.payloads {
                Some(payloads) => &payloads[first..end],
                None => {
                    rows.clear();
                    rows.extend(first as u64..end as u64);
                    &rows
                }
            };
            show(&self.keys[first..end], payloads)?;
            first = end;
        }
        Ok(())
    }
}

/// The rows found by `get_indexer`.
pub struct Rows<'a> {
    pub rows: &'a [AtomicI64],
    pub repeats: AtomicBool,
    pub too_large: AtomicBool,
}

impl Rows<'_> {
    /// Notes the payload of the key at a position.
    pub fn note(&self, position: usize, payload: u64) {
        // Relaxed: a position belongs to one thread of a probe, and the probe's end makes all writes visible.
        let row = &self.rows[position];
        if row.load(Ordering::Relaxed) != -1 {
            self.repeats.store(true, Ordering::Relaxed);
        }
        match i64::try_from(payload) {
            Ok(payload) => row.store(payload, Ordering::Relaxed),
            Err(_) => self.too_large.store(true, Ordering::Relaxed),
        }
    }
}
