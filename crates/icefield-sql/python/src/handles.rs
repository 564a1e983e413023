//! Codecs for objects that have no bytes, such as tables in memory: they are sent as numbers of objects of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{TableReference, exec_err, not_impl_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, ReplaceChildrenOptions};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

/// Objects that have been encoded and not yet decoded. Each is decoded once, unless planning fails before.
#[derive(Debug)]
struct Handles<T: ?Sized> {
    held: Mutex<(u64, BTreeMap<u64, Arc<T>>)>,
}

/// The first bytes of a handle; the number of the process and that of the object follow.
const MAGIC: &[u8] = b"icefield-handle";
/// Number of objects that are held for plans that are never decoded.
const MOST: usize = 4096;

impl<T: ?Sized> Handles<T> {
    const fn new() -> Self {
        Self { held: Mutex::new((0, BTreeMap::new())) }
    }

    fn encode(&self, object: Arc<T>, bytes: &mut Vec<u8>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, objects) = &mut *held;
        *next += 1;
        objects.insert(*next, object);
        if objects.len() > MOST {
            objects.pop_first();
        }
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&std::process::id().to_le_bytes());
        bytes.extend_from_slice(&next.to_le_bytes());
    }

    fn decode(&self, bytes: &[u8]) -> Result<Arc<T>> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return exec_err!("bytes that icefield_sql has not made");
        };
        let number = rest.strip_prefix(&std::process::id().to_le_bytes());
        let Some(number) = number.and_then(|rest| rest.try_into().ok()).map(u64::from_le_bytes)
        else {
            return exec_err!("a plan with a table in the memory of another process");
        };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.1.remove(&number).map_or_else(
            || exec_err!("the bytes of a plan with a table in memory can be read once, and soon"),
            Ok,
        )
    }
}

static TABLES: Handles<dyn TableProvider> = Handles::new();
static PLANS: Handles<dyn ExecutionPlan> = Handles::new();

/// Encodes tables as handles.
#[derive(Debug)]
pub struct TableHandles;

impl LogicalExtensionCodec for TableHandles {
    fn try_decode(&self, _: &[u8], _: &[LogicalPlan], _: &TaskContext) -> Result<Extension> {
        not_impl_err!("a logical operator of another library")
    }

    fn try_encode(&self, _: &Extension, _: &mut Vec<u8>) -> Result<()> {
        not_impl_err!("a logical operator of another library")
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _: &TableReference,
        _: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        TABLES.decode(bytes)
    }

    fn try_encode_table_provider(
        &self,
        _: &TableReference,
        table: Arc<dyn TableProvider>,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        TABLES.encode(table, bytes);
        Ok(())
    }
}

/// Encodes operators as handles.
#[derive(Debug)]
pub struct PlanHandles;

impl PhysicalExtensionCodec for PlanHandles {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = PLANS.decode(bytes)?;
        if inputs.is_empty() {
            return Ok(plan);
        }
        let mode = datafusion::physical_plan::ChildrenPropertiesMode::Recompute;
        plan.replace_children(inputs.to_vec(), ReplaceChildrenOptions::new(mode))
    }

    fn try_encode(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        PLANS.encode(plan, bytes);
        Ok(())
    }
}
