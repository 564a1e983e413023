//! The options of a new table with linear hashing.

use crate::engine::dash::arrays::Arrays;

/// The condition for a table with linear hashing to grow by a segment. Whatever the condition, a segment that still
/// has no room gets a chained bucket.
///
/// ```
/// use icefield::{DashLh, Expansion};
/// let table = DashLh::<u64, u64>::options().expansion(Expansion::Load { percent: 70 }).in_memory()?;
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expansion {
    /// A segment needs a chained bucket (§5.1).
    #[default]
    ChainedBucket,
    /// A segment has no room, and the table's slots are filled to more than this percentage.
    Load {
        /// From 1 to 100.
        percent: u8,
    },
}

/// The growth parameters of a table with linear hashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    pub(crate) first_array: u32,
    pub(crate) stride: u32,
    pub(crate) expansion: Expansion,
}

impl Default for Growth {
    fn default() -> Self {
        Self { first_array: 64, stride: 8, expansion: Expansion::default() }
    }
}

impl Growth {
    /// Returns the shape of the directory, or `None` if the parameters are invalid.
    pub(super) fn arrays(self) -> Option<Arrays> {
        Arrays::new(self.first_array.into(), self.stride.into())
    }

    /// Returns the superblock parameters.
    pub(super) fn params(self) -> [u64; 3] {
        let load = match self.expansion {
            Expansion::ChainedBucket => 0,
            // An invalid value must not be stored as 0, which selects the other condition.
            Expansion::Load { percent: 0 } => u64::MAX,
            Expansion::Load { percent } => percent.into(),
        };
        [self.first_array.into(), self.stride.into(), load]
    }

    /// Returns the growth parameters that superblock parameters encode, or `None` if they are invalid.
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
