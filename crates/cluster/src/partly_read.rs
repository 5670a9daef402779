//! Types that read a part of an object, watched as the kind that they are of.

/// Makes a type, which has the object's `ObjectMeta` at the given place, a resource of this kind: `partly_read!(Slim,
/// Pod, 0.metadata)`. The kind has to be one of a namespace, and the caller to have `kube` and `k8s_openapi`.
#[macro_export]
macro_rules! partly_read {
    ($part:ty, $whole:ty, $($metadata:tt)+) => {
        impl ::kube::Resource for $part {
            type DynamicType = ();
            type Scope = ::k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::kind(&())
            }
            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::group(&())
            }
            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::version(&())
            }
            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                <$whole as ::kube::Resource>::plural(&())
            }
            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.$($metadata)+
            }
            fn meta_mut(&mut self) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.$($metadata)+
            }
        }
    };
}
