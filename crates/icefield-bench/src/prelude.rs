//! The names that most files of this crate use.

pub(crate) use crate::args::{Args, Batch, Medium};
pub(crate) use crate::keys::{KeySpace, Tally, sum, value_of};
pub(crate) use crate::machine::{mops, part};
pub(crate) use crate::place::RemovedDir;
pub(crate) use crate::row::{Row, rounded};
pub(crate) use crate::session::{Session, Setting};
pub(crate) use crate::table::{
    Answers, BenchTable, Call, Design, DesignRef, Form, Made, Maker, Mixed, Place, Placed, Records,
    Setup, detail, regions, unsupported,
};
pub(crate) use crate::table_stats::describe_space;
pub(crate) use crate::{Error, Outcome};
