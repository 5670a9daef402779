//! Messages of Kubernetes inside ours: bytes that are passed on as they came.
//!
//! Invariant: what was decoded is encoded field by field in the same order, also fields that nobody here knows, so a pod
//! submitted by a newer client reaches a newer cluster whole. Only the JSON form is made by the table of `pumice-objects`,
//! and only of what it knows. The generated messages name these types.

use std::fmt;

use prost::bytes::{Buf, BufMut, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};
use pumice_objects::protobuf::{self, ProtobufError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::Value;

/// Adds one field, whose key was read from `buf`, to the fields of a message.
fn append(
    raw: &mut Vec<u8>,
    tag: u32,
    wire_type: WireType,
    buf: &mut impl Buf,
    context: DecodeContext,
) -> Result<(), DecodeError> {
    match wire_type {
        WireType::Varint => {
            let number = encoding::decode_varint(buf)?;
            encoding::encode_key(tag, wire_type, raw);
            encoding::encode_varint(number, raw);
        }
        WireType::SixtyFourBit => {
            let mut number = 0;
            encoding::fixed64::merge(wire_type, &mut number, buf, context)?;
            encoding::fixed64::encode(tag, &number, raw);
        }
        WireType::ThirtyTwoBit => {
            let mut number = 0;
            encoding::fixed32::merge(wire_type, &mut number, buf, context)?;
            encoding::fixed32::encode(tag, &number, raw);
        }
        WireType::LengthDelimited => {
            let mut payload = Bytes::new();
            encoding::bytes::merge(wire_type, &mut payload, buf, context)?;
            encoding::encode_key(tag, wire_type, raw);
            encoding::encode_varint(payload.len() as u64, raw);
            raw.put(payload);
        }
        // Kubernetes has no groups, and its own decoder leaves out what it does not know.
        WireType::StartGroup | WireType::EndGroup => encoding::skip_field(wire_type, tag, buf, context)?,
    }
    Ok(())
}

/// Defines types whose values are a message of Kubernetes as bytes; the text is its name in the table.
macro_rules! messages {
    ($($(#[$attribute:meta])* $name:ident = $message:literal;)*) => {$(
        $(#[$attribute])*
        ///
        /// The default is the message without any field. Two are equal where their bytes are: the same content in another
        /// order is not. Its JSON is that of Kubernetes.
        #[derive(Clone, Default, PartialEq, Eq, Hash)]
        pub struct $name {
            raw: Vec<u8>,
        }

        impl $name {
            /// The message of these bytes, which are not looked at.
            #[must_use]
            pub fn from_raw(raw: Vec<u8>) -> Self {
                Self { raw }
            }

            /// Its fields as they go over the wire.
            #[must_use]
            pub fn raw(&self) -> &[u8] {
                &self.raw
            }

            /// [`Self::raw`] without a copy.
            #[must_use]
            pub fn into_raw(self) -> Vec<u8> {
                self.raw
            }

            /// The message of an object.
            ///
            /// # Errors
            /// Where a field is unknown or of another type.
            pub fn from_json(value: &Value) -> Result<Self, ProtobufError> {
                protobuf::builtin().encode_message($message, value).map(Self::from_raw)
            }

            /// The object, without the fields that the table does not know.
            ///
            /// # Errors
            /// Where the bytes are not such a message.
            pub fn to_json(&self) -> Result<Value, ProtobufError> {
                protobuf::builtin().decode_message($message, &self.raw)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({} bytes)", stringify!($name), self.raw.len())
            }
        }

        impl Message for $name {
            fn encode_raw(&self, buf: &mut impl BufMut) {
                buf.put_slice(&self.raw);
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                append(&mut self.raw, tag, wire_type, buf, context)
            }

            fn encoded_len(&self) -> usize {
                self.raw.len()
            }

            fn clear(&mut self) {
                self.raw.clear();
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.to_json().map_err(ser::Error::custom)?.serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::from_json(&Value::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
    )*};
}

messages! {
    /// What a job runs.
    PodSpec = "core.v1.PodSpec";
    /// Which lines of a log are wanted.
    PodLogOptions = "core.v1.PodLogOptions";
    /// Requests and limits.
    ResourceRequirements = "core.v1.ResourceRequirements";
    /// A service beside a job's pod.
    Service = "core.v1.Service";
    /// An ingress beside a job's pod.
    Ingress = "networking.v1.Ingress";
}

/// A quantity as its text, which is also its JSON; where JSON has a number, it is read as its digits.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Quantity {
    /// As Kubernetes writes it, `1500m` or `4Gi`; not looked at.
    #[prost(string, tag = "1")]
    pub text: String,
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.text.is_empty() { "0" } else { &self.text })
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self { text }),
            Value::Number(number) => Ok(Self { text: number.to_string() }),
            _ => Err(de::Error::custom("a quantity is a string or a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{Job, JobSubmitRequestItem, JobUtilisationEvent};

    fn spec() -> Value {
        json!({ "containers": [{ "name": "main", "image": "busybox", "args": ["sleep", "1"],
            "resources": { "requests": { "cpu": "500m" } } }], "terminationGracePeriodSeconds": 30 })
    }

    #[test]
    fn bytes_go_through_as_they_came() {
        let known = PodSpec::from_json(&spec()).expect("encodes");
        let mut raw = known.raw().to_vec();
        // Fields of each type that no version has.
        encoding::uint64::encode(5000, &u64::MAX, &mut raw);
        encoding::fixed64::encode(5001, &7, &mut raw);
        encoding::fixed32::encode(5002, &8, &mut raw);
        encoding::string::encode(5003, &"new".to_owned(), &mut raw);
        let item =
            JobSubmitRequestItem { pod_specs: vec![PodSpec::from_raw(raw.clone())], ..JobSubmitRequestItem::default() };
        let sent = item.encode_to_vec();
        assert_eq!(sent.len(), item.encoded_len());
        let received = JobSubmitRequestItem::decode(sent.as_slice()).expect("decodes");
        assert_eq!(received.pod_specs[0].raw(), raw);
        assert_eq!(received.pod_specs[0].to_json(), known.to_json());
    }

    #[test]
    fn parts_of_one_message_come_together() {
        let mut sent = Vec::new();
        for part in [json!({ "hostname": "a" }), json!({ "hostname": "b", "subdomain": "c" })] {
            encoding::message::encode(2, &PodSpec::from_json(&part).expect("encodes"), &mut sent);
        }
        #[allow(deprecated)]
        let whole = JobSubmitRequestItem::decode(sent.as_slice()).expect("decodes").pod_spec.expect("set");
        let whole = whole.to_json().expect("decodes");
        assert_eq!((&whole["hostname"], &whole["subdomain"]), (&json!("b"), &json!("c")));
    }

    #[test]
    fn what_breaks_off_is_refused_and_groups_are_left_out() {
        for broken in [&[0x0a, 0x05, 1][..], &[0x08], &[0x09, 1, 2], &[0x0d, 1], &[0x0b, 0x08], &[0x0c]] {
            assert!(PodSpec::decode(broken).is_err(), "{broken:?}");
        }
        let group = [0x0b, 0x08, 0x01, 0x0c, 0x10, 0x02];
        assert_eq!(PodSpec::decode(&group[..]).expect("decodes").raw(), [0x10, 0x02]);
    }

    #[test]
    fn json_is_that_of_kubernetes() {
        let text = json!({ "id": "a", "podSpecs": [spec()], "created": "2026-01-02T03:04:05Z" });
        let job: Job = serde_json::from_value(text).expect("reads");
        assert_eq!(job.created.as_ref().map(|time| time.seconds), Some(1_767_323_045));
        let written = serde_json::to_value(&job).expect("writes");
        let container = &written["podSpecs"][0]["containers"][0];
        assert_eq!(container["resources"]["requests"]["cpu"], "500m");
        assert_eq!(written["created"], "2026-01-02T03:04:05Z");
        let error = serde_json::from_value::<Job>(json!({ "podSpecs": [{ "hostname": 5 }] })).expect_err("refused");
        assert!(error.to_string().contains("hostname"), "{error}");
    }

    #[test]
    fn quantities_are_text() {
        let event = json!({ "MaxResourcesForPeriod": { "cpu": "1500m", "memory": 5 } });
        let event: JobUtilisationEvent = serde_json::from_value(event).expect("reads");
        assert_eq!(event.max_resources_for_period["cpu"].text, "1500m");
        let event = JobUtilisationEvent::decode(event.encode_to_vec().as_slice()).expect("decodes");
        let written = serde_json::to_value(&event).expect("writes");
        assert_eq!(written["MaxResourcesForPeriod"], json!({ "cpu": "1500m", "memory": "5" }));
    }
}
