//! Index joins as bytes, for engines that execute a plan in other processes.
//!
//! The index itself is not sent: a plan names it by its path below an [`IndexRoot`], and by what identifies its state.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::{
    JoinSide, JoinType, NullEquality, internal_datafusion_err, internal_err, not_impl_err,
    project_schema,
};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion::physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::{self, PhysicalExprNode};
use prost::Message;

use crate::index::keys::KeyForm;
use crate::join::exec::{IndexJoinExec, joined};
use crate::join::kind::Join;
use crate::join::missing::MissingExec;
use crate::join::parts::{MOST_PARTS, PartExec, Spread};
use crate::join::side::{IndexSide, KeyPlan};
use crate::root::{IndexReference, IndexRoot};
use crate::table::IndexScanExec;

/// The first bytes of our operators. No message of Protocol Buffers begins like this: the first byte would be the
/// end of a group.
const MAGIC: &[u8] = b"\x0ficefield-join-1\n";

/// Encodes index joins, and leaves all other operators to another codec.
#[derive(Debug)]
pub struct IndexCodec {
    root: IndexRoot,
    inner: Arc<dyn PhysicalExtensionCodec>,
}

impl IndexCodec {
    /// Returns the codec for indexes below a root. `inner` encodes the other operators of the engine.
    pub fn new(root: IndexRoot, inner: Arc<dyn PhysicalExtensionCodec>) -> Self {
        Self { root, inner }
    }

    fn encode(
        &self,
        exec: &IndexJoinExec,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<IndexJoinNode> {
        let encode = |expr: &Arc<dyn PhysicalExpr>| converter.physical_expr_to_proto(expr, self);
        let encode_all =
            |exprs: &[Arc<dyn PhysicalExpr>]| exprs.iter().map(encode).collect::<Result<Vec<_>>>();
        let Join { join_type, index_side, side, keys, nulls, filter, spread, .. } = &**exec.join();
        let reference = self.root.reference(&side.index)?;
        let (compared_probe, compared_index): (Vec<_>, Vec<_>) =
            keys.compared.iter().cloned().unzip();
        let filter = filter.as_ref().map(|filter| -> Result<_> {
            let columns = filter.column_indices().iter();
            Ok(FilterNode {
                expr: Some(encode(filter.expression())?),
                schema: Some(schema_node(filter.schema())?),
                columns: columns.map(|column| column.index as u32).collect(),
                of_index: filter
                    .column_indices()
                    .iter()
                    .map(|column| column.side == *index_side)
                    .collect(),
            })
        });
        Ok(IndexJoinNode {
            path: reference.path,
            uuid: reference.uuid.to_be_bytes().to_vec(),
            generation: reference.generation,
            join_type: JOIN_TYPES.iter().position(|one| one == join_type).unwrap_or(0) as u32,
            index_is_left: *index_side == JoinSide::Left,
            schema: Some(schema_node(&side.schema)?),
            outputs: encode_all(&side.outputs)?,
            predicate: side.predicate.as_ref().map(encode).transpose()?,
            probe: encode_all(&keys.probe)?,
            compared_probe: encode_all(&compared_probe)?,
            compared_index: encode_all(&compared_index)?,
            nulls_are_equal: *nulls == NullEquality::NullEqualsNull,
            filter: filter.transpose()?,
            parts: spread.as_ref().map_or(0, |spread| spread.parts),
            spread_probe: spread.as_ref().map(|spread| schema_node(&spread.probe)).transpose()?,
            projection: exec.projection().map(|columns| ProjectionNode {
                columns: columns.iter().map(|&column| column as u32).collect(),
            }),
        })
    }

    fn decode(
        &self,
        node: &IndexJoinNode,
        probe: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join_type =
            *JOIN_TYPES.get(node.join_type as usize).ok_or_else(|| broken("the type"))?;
        let index_side = if node.index_is_left { JoinSide::Left } else { JoinSide::Right };
        let side_schema = Arc::new(schema_of(node.schema.as_ref())?);
        let spread = match &node.spread_probe {
            Some(schema) if (1..=MOST_PARTS).contains(&node.parts) => {
                let probe = Arc::new(schema_of(Some(schema))?);
                Some(Spread { parts: node.parts, probe })
            }
            Some(_) => return Err(broken("the number of parts")),
            None => None,
        };
        let of_probe =
            spread.as_ref().map_or_else(|| probe.schema(), |spread| Arc::clone(&spread.probe));
        let projection = node.projection.as_ref();
        let projection: Option<Vec<usize>> =
            projection.map(|node| node.columns.iter().map(|&column| column as usize).collect());
        let uuid = <[u8; 16]>::try_from(&*node.uuid).map_err(|_| broken("the uuid"))?;
        let index = self.root.open(&IndexReference {
            path: node.path.clone(),
            uuid: u128::from_be_bytes(uuid),
            generation: node.generation,
        });
        let index = match index {
            Ok(index) => index,
            // An engine may not report why it cannot decode a plan, but it reports why a plan fails.
            Err(error) => {
                let (schema, _) = joined(join_type, index_side, &side_schema, &of_probe)?;
                let schema = project_schema(&schema, projection.as_ref())?;
                return Ok(Arc::new(MissingExec::new(Arc::clone(probe), schema, error)));
            }
        };
        let context = PhysicalPlanDecodeContext::new(context, self);
        let decode = |expr: &PhysicalExprNode, schema: &Schema| {
            converter.proto_to_physical_expr(expr, schema, &context)
        };
        let decode_all = |exprs: &[PhysicalExprNode], schema: &Schema| {
            exprs.iter().map(|expr| decode(expr, schema)).collect::<Result<Vec<_>>>()
        };
        let of_index = Arc::clone(index.schema());
        let filter = node.filter.as_ref().map(|filter| {
            let schema = Arc::new(schema_of(filter.schema.as_ref())?);
            let expr = filter.expr.as_ref().ok_or_else(|| broken("the filter"))?;
            let columns = std::iter::zip(&filter.columns, &filter.of_index);
            let columns = columns.map(|(&index, &of_index)| ColumnIndex {
                index: index as usize,
                side: if of_index { index_side } else { index_side.negate() },
            });
            Ok::<_, DataFusionError>(JoinFilter::new(
                decode(expr, &schema)?,
                columns.collect(),
                schema,
            ))
        });
        let compared_index = decode_all(&node.compared_index, &of_index)?;
        let join = Join {
            join_type,
            index_side,
            side: IndexSide {
                schema: side_schema,
                outputs: decode_all(&node.outputs, &of_index)?,
                predicate: node
                    .predicate
                    .as_ref()
                    .map(|expr| decode(expr, &of_index))
                    .transpose()?,
                index,
            },
            keys: KeyPlan {
                probe: decode_all(&node.probe, &of_probe)?,
                compared: std::iter::zip(
                    decode_all(&node.compared_probe, &of_probe)?,
                    compared_index,
                )
                .collect(),
            },
            nulls: if node.nulls_are_equal {
                NullEquality::NullEqualsNull
            } else {
                NullEquality::NullEqualsNothing
            },
            filter: filter.transpose()?,
            in_cluster: true,
            spread,
        };
        check(&join, probe.schema().fields().len())?;
        Ok(Arc::new(IndexJoinExec::new(Arc::clone(probe), Arc::new(join), projection)?))
    }

    fn encode_part(
        &self,
        exec: &PartExec,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<PartNode> {
        let encode = |expr| converter.physical_expr_to_proto(expr, self);
        let types = exec.types.iter().map(|data_type| Field::new("key", data_type.clone(), true));
        Ok(PartNode {
            keys: exec.keys.iter().map(encode).collect::<Result<_>>()?,
            types: Some(schema_node(&Schema::new(types.collect::<Vec<_>>()))?),
            seed: match exec.form {
                KeyForm::Word => Vec::new(),
                KeyForm::Hash(seed) => seed.to_vec(),
            },
            parts: exec.parts,
            partitions: exec.partitions,
        })
    }

    fn decode_part(
        &self,
        node: &PartNode,
        input: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let context = PhysicalPlanDecodeContext::new(context, self);
        let schema = input.schema();
        let decode = |expr| converter.proto_to_physical_expr(expr, &schema, &context);
        let form = match *node.seed {
            [] => KeyForm::Word,
            [one, two] => KeyForm::Hash([one, two]),
            _ => return Err(broken("the seed")),
        };
        let numbers = 1..=MOST_PARTS;
        if !numbers.contains(&node.parts) || !numbers.contains(&node.partitions) {
            return Err(broken("the number of parts"));
        }
        let types = schema_of(node.types.as_ref())?;
        let types = types.fields().iter().map(|field| field.data_type().clone()).collect();
        let keys = node.keys.iter().map(decode).collect::<Result<_>>()?;
        let input = Arc::clone(input);
        Ok(Arc::new(PartExec::new(input, keys, form, types, node.parts, node.partitions)))
    }
}

/// The types of joins, in the order of their numbers in messages.
const JOIN_TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// Returns an error if a decoded join names columns that do not exist.
fn check(join: &Join, probe_columns: usize) -> Result<()> {
    let Join { index_side, side, keys, filter, spread, .. } = join;
    let of_probe = spread.as_ref().map_or(probe_columns, |spread| spread.probe.fields().len());
    let has = |column: &ColumnIndex| match column.side == *index_side {
        true => column.index < side.outputs.len(),
        false => column.index < of_probe,
    };
    let filter_fits = filter.as_ref().is_none_or(|filter| {
        let columns = filter.column_indices();
        columns.len() == filter.schema().fields().len() && columns.iter().all(has)
    });
    if side.outputs.len() != side.schema.fields().len()
        || keys.probe.len() != side.index.keys().len()
        || of_probe > probe_columns
        || !filter_fits
    {
        return Err(broken("the number of columns"));
    }
    Ok(())
}

fn broken(what: &str) -> DataFusionError {
    internal_datafusion_err!("{what} of an index join cannot be decoded")
}

fn schema_node(schema: &Schema) -> Result<protobuf::Schema> {
    Ok(schema.try_into()?)
}

fn schema_of(node: Option<&protobuf::Schema>) -> Result<Schema> {
    Ok(node.ok_or_else(|| broken("a schema"))?.try_into()?)
}

/// One of our operators.
#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(message, optional, tag = 1)]
    join: Option<IndexJoinNode>,
    #[prost(message, optional, tag = 2)]
    part: Option<PartNode>,
}

/// An [`IndexJoinExec`] without its input.
#[derive(Clone, PartialEq, Message)]
struct IndexJoinNode {
    #[prost(string, tag = 1)]
    path: String,
    #[prost(bytes, tag = 2)]
    uuid: Vec<u8>,
    #[prost(uint64, tag = 3)]
    generation: u64,
    #[prost(uint32, tag = 4)]
    join_type: u32,
    #[prost(bool, tag = 5)]
    index_is_left: bool,
    #[prost(message, optional, tag = 6)]
    schema: Option<protobuf::Schema>,
    #[prost(message, repeated, tag = 7)]
    outputs: Vec<PhysicalExprNode>,
    #[prost(message, optional, tag = 8)]
    predicate: Option<PhysicalExprNode>,
    #[prost(message, repeated, tag = 9)]
    probe: Vec<PhysicalExprNode>,
    #[prost(message, repeated, tag = 10)]
    compared_probe: Vec<PhysicalExprNode>,
    #[prost(message, repeated, tag = 11)]
    compared_index: Vec<PhysicalExprNode>,
    #[prost(message, optional, tag = 12)]
    filter: Option<FilterNode>,
    #[prost(message, optional, tag = 13)]
    projection: Option<ProjectionNode>,
    #[prost(uint32, tag = 14)]
    parts: u32,
    #[prost(message, optional, tag = 15)]
    spread_probe: Option<protobuf::Schema>,
    #[prost(bool, tag = 16)]
    nulls_are_equal: bool,
}

/// A [`PartExec`] without its input.
#[derive(Clone, PartialEq, Message)]
struct PartNode {
    #[prost(message, repeated, tag = 1)]
    keys: Vec<PhysicalExprNode>,
    /// The types of the keys in the index.
    #[prost(message, optional, tag = 2)]
    types: Option<protobuf::Schema>,
    /// The two words of the hash's seed; empty if the key is the word.
    #[prost(uint64, repeated, tag = 3)]
    seed: Vec<u64>,
    #[prost(uint32, tag = 4)]
    parts: u32,
    #[prost(uint32, tag = 5)]
    partitions: u32,
}

/// A condition on pairs.
#[derive(Clone, PartialEq, Message)]
struct FilterNode {
    #[prost(message, optional, tag = 1)]
    expr: Option<PhysicalExprNode>,
    #[prost(message, optional, tag = 2)]
    schema: Option<protobuf::Schema>,
    #[prost(uint32, repeated, tag = 3)]
    columns: Vec<u32>,
    #[prost(bool, repeated, tag = 4)]
    of_index: Vec<bool>,
}

/// The columns that a join returns.
#[derive(Clone, PartialEq, Message)]
struct ProjectionNode {
    #[prost(uint32, repeated, tag = 1)]
    columns: Vec<u32>,
}

impl PhysicalExtensionCodec for IndexCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(bytes) = bytes.strip_prefix(MAGIC) else {
            return self.inner.try_decode(bytes, inputs, context, converter);
        };
        let node = Node::decode(bytes).map_err(|error| broken(&error.to_string()))?;
        let [input] = inputs else { return internal_err!("{} inputs of one", inputs.len()) };
        match (&node.join, &node.part) {
            (Some(join), None) => self.decode(join, input, context, converter),
            (None, Some(part)) => self.decode_part(part, input, context, converter),
            _ => Err(broken("the kind of operator")),
        }
    }

    fn try_encode(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let node = if let Some(exec) = plan.downcast_ref::<IndexJoinExec>() {
            Some(Node { join: Some(self.encode(exec, converter)?), part: None })
        } else if let Some(exec) = plan.downcast_ref::<PartExec>() {
            Some(Node { join: None, part: Some(self.encode_part(exec, converter)?) })
        } else {
            None
        };
        if let Some(node) = node {
            bytes.extend_from_slice(MAGIC);
            bytes.extend(node.encode_to_vec());
            return Ok(());
        }
        if plan.is::<IndexScanExec>() {
            return not_impl_err!(
                "an index as a table cannot be sent to other processes: name the files it was built from"
            );
        }
        self.inner.try_encode(plan, bytes, converter)
    }

    fn try_decode_udf(&self, name: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        self.inner.try_decode_udf(name, bytes)
    }

    fn try_encode_udf(&self, function: &ScalarUDF, bytes: &mut Vec<u8>) -> Result<()> {
        self.inner.try_encode_udf(function, bytes)
    }

    fn try_decode_higher_order_function(
        &self,
        name: &str,
        bytes: &[u8],
    ) -> Result<Arc<HigherOrderUDF>> {
        self.inner.try_decode_higher_order_function(name, bytes)
    }

    fn try_encode_higher_order_function(
        &self,
        function: &HigherOrderUDF,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        self.inner.try_encode_higher_order_function(function, bytes)
    }

    fn try_decode_expr(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        context: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        self.inner.try_decode_expr(bytes, inputs, context)
    }

    fn try_encode_expr(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        bytes: &mut Vec<u8>,
        context: &PhysicalExprEncodeCtx<'_>,
    ) -> Result<()> {
        self.inner.try_encode_expr(expr, bytes, context)
    }

    fn try_decode_udaf(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.inner.try_decode_udaf(name, bytes)
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, bytes: &mut Vec<u8>) -> Result<()> {
        self.inner.try_encode_udaf(function, bytes)
    }

    fn try_decode_udwf(&self, name: &str, bytes: &[u8]) -> Result<Arc<WindowUDF>> {
        self.inner.try_decode_udwf(name, bytes)
    }

    fn try_encode_udwf(&self, function: &WindowUDF, bytes: &mut Vec<u8>) -> Result<()> {
        self.inner.try_encode_udwf(function, bytes)
    }
}
