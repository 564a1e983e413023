//! What a table with linear hashing is told when it is made.

use crate::dash::arrays::Arrays;

/// What makes a table with linear hashing grow by a segment. Either way a segment without room gets a chained bucket.
///
/// ```
/// use icefield::{DashLh, Expansion};
/// let table = DashLh::<u64, u64>::options().expansion(Expansion::Load { percent: 70 }).in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expansion {
    /// Each chained bucket that a segment gets (§5.1).
    #[default]
    ChainedBucket,
    /// A segment without room in a table whose slots are fuller than this.
    Load {
        /// 1 to 100.
        percent: u8,
    },
}

/// How a table with linear hashing grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    pub(in crate::dash) first_array: u32,
    pub(in crate::dash) stride: u32,
    pub(in crate::dash) expansion: Expansion,
}

impl Default for Growth {
    fn default() -> Self {
        Self { first_array: 64, stride: 8, expansion: Expansion::default() }
    }
}

impl Growth {
    /// The shape of the directory.
    pub(super) fn arrays(self) -> Option<Arrays> {
        Arrays::new(self.first_array.into(), self.stride.into())
    }

    /// As superblock parameters.
    pub(super) fn params(self) -> [u64; 3] {
        let load = match self.expansion {
            Expansion::ChainedBucket => 0,
            // Not possible, and not to be taken for the other way.
            Expansion::Load { percent: 0 } => u64::MAX,
            Expansion::Load { percent } => percent.into(),
        };
        [self.first_array.into(), self.stride.into(), load]
    }

    /// What superblock parameters stand for, if it is possible.
    pub(super) fn from_params([first_array, stride, load]: [u64; 3]) -> Option<Self> {
        let expansion = match load {
            0 => Expansion::ChainedBucket,
            percent @ 1..=100 => Expansion::Load { percent: percent as u8 },
            _ => return None,
        };
        Arrays::new(first_array, stride)?;
        Some(Self { first_array: first_array as u32, stride: stride as u32, expansion })
    }
}
