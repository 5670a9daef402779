//! What makes a struct a Kubernetes kind: `apiVersion` and `kind` on the wire, metadata, and where it is served.
//!
//! The `custom_resource!` macro is used once per kind by the group modules; [`CustomResource`] is what the code generator
//! needs to know beyond [`k8s_openapi::Resource`].

/// A kind that is served through a CustomResourceDefinition of ours.
pub trait CustomResource: k8s_openapi::Resource {
    /// The kind in lower case, as `kubectl get` takes it for one object: `job`.
    const SINGULAR: &'static str;
    /// Short names, in upstream's order.
    const SHORT_NAMES: &'static [&'static str];
    /// True for kinds without a namespace.
    const CLUSTER_SCOPED: bool;
}

/// Defines a kind: the struct, its serde, schema and resource traits.
///
/// A type that does not match the wire's `apiVersion` and `kind` is an error; absent ones are accepted, because items of a
/// list carry none.
macro_rules! custom_resource {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty = $wire:literal, )+
        }
        group: $group:literal, version: $version:literal, plural: $plural:literal, singular: $singular:literal,
        short_names: [$($short:literal),*], scope: $scope:ident, cluster_scoped: $cluster:literal
        $(, required: [$($required:literal),+])?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            /// Standard object metadata.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $( $(#[$field_meta])* pub $field: $type, )+
        }

        impl k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::$scope;
        }

        impl k8s_openapi::ListableResource for $name {
            const LIST_KIND: &'static str = concat!(stringify!($name), "List");
        }

        impl k8s_openapi::Metadata for $name {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }

        impl crate::CustomResource for $name {
            const SINGULAR: &'static str = $singular;
            const SHORT_NAMES: &'static [&'static str] = &[$($short),*];
            const CLUSTER_SCOPED: bool = $cluster;
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                const REQUIRED: &[&str] = &[$($($required),+)?];
                let left_out = [$( crate::wire::is_default(&self.$field) && !REQUIRED.contains(&$wire) ),+];
                let present = 3 + left_out.iter().filter(|left_out| !**left_out).count();
                let mut out = serializer.serialize_struct(stringify!($name), present)?;
                out.serialize_field("apiVersion", <Self as k8s_openapi::Resource>::API_VERSION)?;
                out.serialize_field("kind", <Self as k8s_openapi::Resource>::KIND)?;
                out.serialize_field("metadata", &self.metadata)?;
                $(
                    if crate::wire::is_default(&self.$field) && !REQUIRED.contains(&$wire) {
                        out.skip_field($wire)?;
                    } else {
                        out.serialize_field($wire, &self.$field)?;
                    }
                )+
                out.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                struct Wire {
                    #[serde(rename = "apiVersion", default)]
                    api_version: Option<String>,
                    #[serde(default)]
                    kind: Option<String>,
                    #[serde(default, deserialize_with = "crate::wire::or_default")]
                    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                    $(
                        #[serde(rename = $wire, default, deserialize_with = "crate::wire::or_default")]
                        $field: $type,
                    )+
                }
                let wire = Wire::deserialize(deserializer)?;
                crate::resource::check_type::<Self, D::Error>(wire.api_version.as_deref(), wire.kind.as_deref())?;
                Ok(Self { metadata: wire.metadata, $( $field: wire.$field, )+ })
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                concat!($group, ".", $version, ".", stringify!($name)).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "object",
                    "properties": {
                        "apiVersion": { "type": "string" },
                        "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        $( $wire: generator.subschema_for::<$type>(), )+
                    },
                    $( "required": [$($required),+], )?
                })
            }
        }
    };
}

/// Refuses an object of another kind; absent fields pass.
pub(crate) fn check_type<T: k8s_openapi::Resource, E: serde::de::Error>(
    api_version: Option<&str>,
    kind: Option<&str>,
) -> Result<(), E> {
    for (field, found, wanted) in [("apiVersion", api_version, T::API_VERSION), ("kind", kind, T::KIND)] {
        if let Some(found) = found.filter(|found| !found.is_empty() && *found != wanted) {
            return Err(E::custom(format_args!("expected {field} {wanted}, found {found}")));
        }
    }
    Ok(())
}
