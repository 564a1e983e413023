//! A record of a recovery log: the words of a table's record and one more word. A flag in each word shows whether all
//! words have been stored (§4.2, after Mnemosyne).

use super::epoch::LogEpoch;
use super::words::{Measure, RecordOf};
use crate::types::RecordForm;

pub(super) const FLAG: u64 = 1 << 63;

/// The bit, in the last word of a log record, that holds the top bit of another word.
#[inline(always)]
fn top_bit(word: usize) -> u64 {
    FLAG >> 1 >> word
}

/// The bit, in the last word of a log record, that marks the record as a removal.
pub(super) fn dead_bit<R: RecordForm>(measure: Measure<R>) -> u64 {
    top_bit(measure.widths().words())
}

/// Passes the words of a log record to `store`: those of the record, with the flag in place of their top bits, and a
/// last word with the flag, the replaced bits, the removal bit and the epoch.
#[inline(always)]
pub(super) fn encode<R: RecordForm>(
    measure: Measure<R>,
    (record, epoch): (&RecordOf<R>, LogEpoch),
    flag: u64,
    mut store: impl FnMut(usize, u64),
) {
    let words = measure.widths().words();
    let mut last = flag | epoch.bits();
    measure.each_word(record, |at, word| {
        last |= (word & FLAG) >> 1 >> at;
        store(at, word & !FLAG | flag);
    });
    if record.dead {
        last |= top_bit(words);
    }
    store(words, last);
}

/// The record whose words `load` returns; `None` if any of them does not have the flag.
#[inline(always)]
pub(super) fn decode<R: RecordForm>(
    measure: Measure<R>,
    flag: u64,
    load: impl Fn(usize) -> u64,
) -> Option<(RecordOf<R>, LogEpoch)> {
    let words = measure.widths().words();
    let last = load(words);
    let mut differing = last ^ flag;
    let record = measure.record(last & top_bit(words) != 0, |at| {
        let word = load(at);
        differing |= word ^ flag;
        word & !FLAG | last << 1 << at & FLAG
    });
    (differing & FLAG == 0).then_some((record, LogEpoch::of_bits(last)))
}

#[cfg(test)]
mod tests {
    use super::super::words::measure;
    use super::*;
    use crate::types::{Forms, InWord, InWords};

    #[test]
    fn records_survive_packing_in_both_rounds() {
        survive_packing::<Forms<InWord, InWord>>();
        survive_packing::<Forms<InWords<2>, InWord>>();
        survive_packing::<Forms<InWords<8>, InWords<8>>>();
    }

    /// Records whose words are all equal except one, which takes each edge value.
    fn survive_packing<R: RecordForm>() {
        let edges = [0, 1, FLAG - 1, FLAG, u64::MAX];
        let (measure, epoch) = (measure::<R>(), LogEpoch::of_bits(u64::MAX));
        let words = measure.widths().words();
        for (flag, dead) in [(0, false), (FLAG, false), (0, true), (FLAG, true)] {
            for (place, edge, others) in
                (0..words).flat_map(|place| edges.map(|edge| (place, edge, !edge)))
            {
                let record = measure.record(dead, |at| if at == place { edge } else { others });
                let mut stored = vec![0; words + 1];
                encode(measure, (&record, epoch), flag, |at, word| stored[at] = word);
                assert_eq!(decode(measure, flag, |at| stored[at]), Some((record, epoch)));
                assert_eq!(decode(measure, flag ^ FLAG, |at| stored[at]), None);
                for torn in 0..=words {
                    let word = |at| if at == torn { stored[at] ^ FLAG } else { stored[at] };
                    assert_eq!(decode(measure, flag, word), None);
                }
            }
        }
    }
}
