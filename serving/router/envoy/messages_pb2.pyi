import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ApiVersion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTO: _ClassVar[ApiVersion]
    V3: _ClassVar[ApiVersion]
AUTO: ApiVersion
V3: ApiVersion
TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
type_name: _descriptor.FieldDescriptor

class DeltaDiscoveryRequest(_message.Message):
    __slots__ = ("type_url", "resource_names_subscribe", "resource_names_unsubscribe", "initial_resource_versions", "response_nonce", "error_detail")
    class InitialResourceVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAMES_SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAMES_UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_RESOURCE_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_NONCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_DETAIL_FIELD_NUMBER: _ClassVar[int]
    type_url: str
    resource_names_subscribe: _containers.RepeatedScalarFieldContainer[str]
    resource_names_unsubscribe: _containers.RepeatedScalarFieldContainer[str]
    initial_resource_versions: _containers.ScalarMap[str, str]
    response_nonce: str
    error_detail: Status
    def __init__(self, type_url: _Optional[str] = ..., resource_names_subscribe: _Optional[_Iterable[str]] = ..., resource_names_unsubscribe: _Optional[_Iterable[str]] = ..., initial_resource_versions: _Optional[_Mapping[str, str]] = ..., response_nonce: _Optional[str] = ..., error_detail: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class DeltaDiscoveryResponse(_message.Message):
    __slots__ = ("resources", "type_url", "nonce", "removed_resources")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    type_url: str
    nonce: str
    removed_resources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., type_url: _Optional[str] = ..., nonce: _Optional[str] = ..., removed_resources: _Optional[_Iterable[str]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("version", "resource", "name")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    version: str
    resource: _any_pb2.Any
    name: str
    def __init__(self, version: _Optional[str] = ..., resource: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class RouteConfiguration(_message.Message):
    __slots__ = ("name", "virtual_hosts", "ignore_port_in_host_matching")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_HOSTS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_PORT_IN_HOST_MATCHING_FIELD_NUMBER: _ClassVar[int]
    name: str
    virtual_hosts: _containers.RepeatedCompositeFieldContainer[VirtualHost]
    ignore_port_in_host_matching: bool
    def __init__(self, name: _Optional[str] = ..., virtual_hosts: _Optional[_Iterable[_Union[VirtualHost, _Mapping]]] = ..., ignore_port_in_host_matching: _Optional[bool] = ...) -> None: ...

class EncodedVirtualHosts(_message.Message):
    __slots__ = ("virtual_hosts",)
    VIRTUAL_HOSTS_FIELD_NUMBER: _ClassVar[int]
    virtual_hosts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, virtual_hosts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class VirtualHost(_message.Message):
    __slots__ = ("name", "domains", "routes", "matcher", "request_body_buffer_limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    MATCHER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_BODY_BUFFER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    domains: _containers.RepeatedScalarFieldContainer[str]
    routes: _containers.RepeatedCompositeFieldContainer[Route]
    matcher: Matcher
    request_body_buffer_limit: _wrappers_pb2.UInt64Value
    def __init__(self, name: _Optional[str] = ..., domains: _Optional[_Iterable[str]] = ..., routes: _Optional[_Iterable[_Union[Route, _Mapping]]] = ..., matcher: _Optional[_Union[Matcher, _Mapping]] = ..., request_body_buffer_limit: _Optional[_Union[_wrappers_pb2.UInt64Value, _Mapping]] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("match", "route", "metadata", "direct_response", "response_headers_to_add", "request_headers_to_remove", "typed_per_filter_config")
    class TypedPerFilterConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    MATCH_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DIRECT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_HEADERS_TO_ADD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_HEADERS_TO_REMOVE_FIELD_NUMBER: _ClassVar[int]
    TYPED_PER_FILTER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    match: RouteMatch
    route: RouteAction
    metadata: Metadata
    direct_response: DirectResponseAction
    response_headers_to_add: _containers.RepeatedCompositeFieldContainer[HeaderValueOption]
    request_headers_to_remove: _containers.RepeatedScalarFieldContainer[str]
    typed_per_filter_config: _containers.MessageMap[str, _any_pb2.Any]
    def __init__(self, match: _Optional[_Union[RouteMatch, _Mapping]] = ..., route: _Optional[_Union[RouteAction, _Mapping]] = ..., metadata: _Optional[_Union[Metadata, _Mapping]] = ..., direct_response: _Optional[_Union[DirectResponseAction, _Mapping]] = ..., response_headers_to_add: _Optional[_Iterable[_Union[HeaderValueOption, _Mapping]]] = ..., request_headers_to_remove: _Optional[_Iterable[str]] = ..., typed_per_filter_config: _Optional[_Mapping[str, _any_pb2.Any]] = ...) -> None: ...

class RouteMatch(_message.Message):
    __slots__ = ("prefix",)
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    def __init__(self, prefix: _Optional[str] = ...) -> None: ...

class RouteAction(_message.Message):
    __slots__ = ("cluster", "weighted_clusters", "prefix_rewrite", "timeout", "retry_policy", "hash_policy", "idle_timeout")
    class HashPolicy(_message.Message):
        __slots__ = ("header", "terminal")
        class Header(_message.Message):
            __slots__ = ("header_name", "regex_rewrite")
            HEADER_NAME_FIELD_NUMBER: _ClassVar[int]
            REGEX_REWRITE_FIELD_NUMBER: _ClassVar[int]
            header_name: str
            regex_rewrite: RegexMatchAndSubstitute
            def __init__(self, header_name: _Optional[str] = ..., regex_rewrite: _Optional[_Union[RegexMatchAndSubstitute, _Mapping]] = ...) -> None: ...
        HEADER_FIELD_NUMBER: _ClassVar[int]
        TERMINAL_FIELD_NUMBER: _ClassVar[int]
        header: RouteAction.HashPolicy.Header
        terminal: bool
        def __init__(self, header: _Optional[_Union[RouteAction.HashPolicy.Header, _Mapping]] = ..., terminal: _Optional[bool] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    WEIGHTED_CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_REWRITE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    HASH_POLICY_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    weighted_clusters: WeightedCluster
    prefix_rewrite: str
    timeout: _duration_pb2.Duration
    retry_policy: RetryPolicy
    hash_policy: _containers.RepeatedCompositeFieldContainer[RouteAction.HashPolicy]
    idle_timeout: _duration_pb2.Duration
    def __init__(self, cluster: _Optional[str] = ..., weighted_clusters: _Optional[_Union[WeightedCluster, _Mapping]] = ..., prefix_rewrite: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry_policy: _Optional[_Union[RetryPolicy, _Mapping]] = ..., hash_policy: _Optional[_Iterable[_Union[RouteAction.HashPolicy, _Mapping]]] = ..., idle_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WeightedCluster(_message.Message):
    __slots__ = ("clusters", "runtime_key_prefix", "use_hash_policy")
    class ClusterWeight(_message.Message):
        __slots__ = ("name", "weight", "response_headers_to_add", "typed_per_filter_config")
        class TypedPerFilterConfigEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: _any_pb2.Any
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
        NAME_FIELD_NUMBER: _ClassVar[int]
        WEIGHT_FIELD_NUMBER: _ClassVar[int]
        RESPONSE_HEADERS_TO_ADD_FIELD_NUMBER: _ClassVar[int]
        TYPED_PER_FILTER_CONFIG_FIELD_NUMBER: _ClassVar[int]
        name: str
        weight: _wrappers_pb2.UInt32Value
        response_headers_to_add: _containers.RepeatedCompositeFieldContainer[HeaderValueOption]
        typed_per_filter_config: _containers.MessageMap[str, _any_pb2.Any]
        def __init__(self, name: _Optional[str] = ..., weight: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., response_headers_to_add: _Optional[_Iterable[_Union[HeaderValueOption, _Mapping]]] = ..., typed_per_filter_config: _Optional[_Mapping[str, _any_pb2.Any]] = ...) -> None: ...
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    USE_HASH_POLICY_FIELD_NUMBER: _ClassVar[int]
    clusters: _containers.RepeatedCompositeFieldContainer[WeightedCluster.ClusterWeight]
    runtime_key_prefix: str
    use_hash_policy: _wrappers_pb2.BoolValue
    def __init__(self, clusters: _Optional[_Iterable[_Union[WeightedCluster.ClusterWeight, _Mapping]]] = ..., runtime_key_prefix: _Optional[str] = ..., use_hash_policy: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("retry_on", "num_retries", "per_try_timeout", "retry_priority", "retry_host_predicate", "host_selection_retry_max_attempts", "retriable_status_codes", "refresh_cluster_on_retry")
    class RetryPriority(_message.Message):
        __slots__ = ("name", "typed_config")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TYPED_CONFIG_FIELD_NUMBER: _ClassVar[int]
        name: str
        typed_config: _any_pb2.Any
        def __init__(self, name: _Optional[str] = ..., typed_config: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    class RetryHostPredicate(_message.Message):
        __slots__ = ("name", "typed_config")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TYPED_CONFIG_FIELD_NUMBER: _ClassVar[int]
        name: str
        typed_config: _any_pb2.Any
        def __init__(self, name: _Optional[str] = ..., typed_config: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    RETRY_ON_FIELD_NUMBER: _ClassVar[int]
    NUM_RETRIES_FIELD_NUMBER: _ClassVar[int]
    PER_TRY_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RETRY_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETRY_HOST_PREDICATE_FIELD_NUMBER: _ClassVar[int]
    HOST_SELECTION_RETRY_MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_STATUS_CODES_FIELD_NUMBER: _ClassVar[int]
    REFRESH_CLUSTER_ON_RETRY_FIELD_NUMBER: _ClassVar[int]
    retry_on: str
    num_retries: _wrappers_pb2.UInt32Value
    per_try_timeout: _duration_pb2.Duration
    retry_priority: RetryPolicy.RetryPriority
    retry_host_predicate: _containers.RepeatedCompositeFieldContainer[RetryPolicy.RetryHostPredicate]
    host_selection_retry_max_attempts: int
    retriable_status_codes: _containers.RepeatedScalarFieldContainer[int]
    refresh_cluster_on_retry: bool
    def __init__(self, retry_on: _Optional[str] = ..., num_retries: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., per_try_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry_priority: _Optional[_Union[RetryPolicy.RetryPriority, _Mapping]] = ..., retry_host_predicate: _Optional[_Iterable[_Union[RetryPolicy.RetryHostPredicate, _Mapping]]] = ..., host_selection_retry_max_attempts: _Optional[int] = ..., retriable_status_codes: _Optional[_Iterable[int]] = ..., refresh_cluster_on_retry: _Optional[bool] = ...) -> None: ...

class DirectResponseAction(_message.Message):
    __slots__ = ("status", "body")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    status: int
    body: DataSource
    def __init__(self, status: _Optional[int] = ..., body: _Optional[_Union[DataSource, _Mapping]] = ...) -> None: ...

class FilterConfig(_message.Message):
    __slots__ = ("config",)
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    config: _any_pb2.Any
    def __init__(self, config: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class PreviousHostsPredicate(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PreviousPrioritiesConfig(_message.Message):
    __slots__ = ("update_frequency",)
    UPDATE_FREQUENCY_FIELD_NUMBER: _ClassVar[int]
    update_frequency: int
    def __init__(self, update_frequency: _Optional[int] = ...) -> None: ...

class LuaPerRoute(_message.Message):
    __slots__ = ("filter_context",)
    FILTER_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    filter_context: _struct_pb2.Struct
    def __init__(self, filter_context: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class GrpcBridgePerRoute(_message.Message):
    __slots__ = ("disabled",)
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    disabled: bool
    def __init__(self, disabled: _Optional[bool] = ...) -> None: ...

class HttpProtocolOptions(_message.Message):
    __slots__ = ("common_http_protocol_options", "explicit_http_config", "outlier_detection", "retry_policy")
    class ExplicitHttpConfig(_message.Message):
        __slots__ = ("http_protocol_options", "http2_protocol_options")
        HTTP_PROTOCOL_OPTIONS_FIELD_NUMBER: _ClassVar[int]
        HTTP2_PROTOCOL_OPTIONS_FIELD_NUMBER: _ClassVar[int]
        http_protocol_options: Http1ProtocolOptions
        http2_protocol_options: Http2ProtocolOptions
        def __init__(self, http_protocol_options: _Optional[_Union[Http1ProtocolOptions, _Mapping]] = ..., http2_protocol_options: _Optional[_Union[Http2ProtocolOptions, _Mapping]] = ...) -> None: ...
    class OutlierDetection(_message.Message):
        __slots__ = ("error_matcher",)
        ERROR_MATCHER_FIELD_NUMBER: _ClassVar[int]
        error_matcher: MatchPredicate
        def __init__(self, error_matcher: _Optional[_Union[MatchPredicate, _Mapping]] = ...) -> None: ...
    COMMON_HTTP_PROTOCOL_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_HTTP_CONFIG_FIELD_NUMBER: _ClassVar[int]
    OUTLIER_DETECTION_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    common_http_protocol_options: CommonHttpProtocolOptions
    explicit_http_config: HttpProtocolOptions.ExplicitHttpConfig
    outlier_detection: HttpProtocolOptions.OutlierDetection
    retry_policy: RetryPolicy
    def __init__(self, common_http_protocol_options: _Optional[_Union[CommonHttpProtocolOptions, _Mapping]] = ..., explicit_http_config: _Optional[_Union[HttpProtocolOptions.ExplicitHttpConfig, _Mapping]] = ..., outlier_detection: _Optional[_Union[HttpProtocolOptions.OutlierDetection, _Mapping]] = ..., retry_policy: _Optional[_Union[RetryPolicy, _Mapping]] = ...) -> None: ...

class CommonHttpProtocolOptions(_message.Message):
    __slots__ = ("idle_timeout", "max_stream_duration")
    IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAM_DURATION_FIELD_NUMBER: _ClassVar[int]
    idle_timeout: _duration_pb2.Duration
    max_stream_duration: _duration_pb2.Duration
    def __init__(self, idle_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_stream_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Http1ProtocolOptions(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Http2ProtocolOptions(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Metadata(_message.Message):
    __slots__ = ("filter_metadata",)
    class FilterMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Struct
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
    FILTER_METADATA_FIELD_NUMBER: _ClassVar[int]
    filter_metadata: _containers.MessageMap[str, _struct_pb2.Struct]
    def __init__(self, filter_metadata: _Optional[_Mapping[str, _struct_pb2.Struct]] = ...) -> None: ...

class DataSource(_message.Message):
    __slots__ = ("inline_string",)
    INLINE_STRING_FIELD_NUMBER: _ClassVar[int]
    inline_string: str
    def __init__(self, inline_string: _Optional[str] = ...) -> None: ...

class HeaderValueOption(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: HeaderValue
    def __init__(self, header: _Optional[_Union[HeaderValue, _Mapping]] = ...) -> None: ...

class HeaderValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ConfigSource(_message.Message):
    __slots__ = ("ads", "resource_api_version")
    ADS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_API_VERSION_FIELD_NUMBER: _ClassVar[int]
    ads: AggregatedConfigSource
    resource_api_version: ApiVersion
    def __init__(self, ads: _Optional[_Union[AggregatedConfigSource, _Mapping]] = ..., resource_api_version: _Optional[_Union[ApiVersion, str]] = ...) -> None: ...

class AggregatedConfigSource(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Address(_message.Message):
    __slots__ = ("socket_address", "pipe")
    SOCKET_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PIPE_FIELD_NUMBER: _ClassVar[int]
    socket_address: SocketAddress
    pipe: Pipe
    def __init__(self, socket_address: _Optional[_Union[SocketAddress, _Mapping]] = ..., pipe: _Optional[_Union[Pipe, _Mapping]] = ...) -> None: ...

class SocketAddress(_message.Message):
    __slots__ = ("address", "port_value")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_VALUE_FIELD_NUMBER: _ClassVar[int]
    address: str
    port_value: int
    def __init__(self, address: _Optional[str] = ..., port_value: _Optional[int] = ...) -> None: ...

class Pipe(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class TypedExtensionConfig(_message.Message):
    __slots__ = ("name", "typed_config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPED_CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    typed_config: _any_pb2.Any
    def __init__(self, name: _Optional[str] = ..., typed_config: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class MatchPredicate(_message.Message):
    __slots__ = ("not_match", "any_match")
    NOT_MATCH_FIELD_NUMBER: _ClassVar[int]
    ANY_MATCH_FIELD_NUMBER: _ClassVar[int]
    not_match: MatchPredicate
    any_match: bool
    def __init__(self, not_match: _Optional[_Union[MatchPredicate, _Mapping]] = ..., any_match: _Optional[bool] = ...) -> None: ...

class Percent(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: float
    def __init__(self, value: _Optional[float] = ...) -> None: ...

class RegexMatcher(_message.Message):
    __slots__ = ("regex",)
    REGEX_FIELD_NUMBER: _ClassVar[int]
    regex: str
    def __init__(self, regex: _Optional[str] = ...) -> None: ...

class RegexMatchAndSubstitute(_message.Message):
    __slots__ = ("pattern", "substitution")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    SUBSTITUTION_FIELD_NUMBER: _ClassVar[int]
    pattern: RegexMatcher
    substitution: str
    def __init__(self, pattern: _Optional[_Union[RegexMatcher, _Mapping]] = ..., substitution: _Optional[str] = ...) -> None: ...

class HttpRequestHeaderMatchInput(_message.Message):
    __slots__ = ("header_name",)
    HEADER_NAME_FIELD_NUMBER: _ClassVar[int]
    header_name: str
    def __init__(self, header_name: _Optional[str] = ...) -> None: ...

class Matcher(_message.Message):
    __slots__ = ("matcher_tree", "on_no_match")
    class OnMatch(_message.Message):
        __slots__ = ("action",)
        ACTION_FIELD_NUMBER: _ClassVar[int]
        action: TypedExtensionConfig
        def __init__(self, action: _Optional[_Union[TypedExtensionConfig, _Mapping]] = ...) -> None: ...
    class MatcherTree(_message.Message):
        __slots__ = ("input", "prefix_match_map")
        class MatchMap(_message.Message):
            __slots__ = ("map",)
            class MapEntry(_message.Message):
                __slots__ = ("key", "value")
                KEY_FIELD_NUMBER: _ClassVar[int]
                VALUE_FIELD_NUMBER: _ClassVar[int]
                key: str
                value: Matcher.OnMatch
                def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Matcher.OnMatch, _Mapping]] = ...) -> None: ...
            MAP_FIELD_NUMBER: _ClassVar[int]
            map: _containers.MessageMap[str, Matcher.OnMatch]
            def __init__(self, map: _Optional[_Mapping[str, Matcher.OnMatch]] = ...) -> None: ...
        INPUT_FIELD_NUMBER: _ClassVar[int]
        PREFIX_MATCH_MAP_FIELD_NUMBER: _ClassVar[int]
        input: TypedExtensionConfig
        prefix_match_map: Matcher.MatcherTree.MatchMap
        def __init__(self, input: _Optional[_Union[TypedExtensionConfig, _Mapping]] = ..., prefix_match_map: _Optional[_Union[Matcher.MatcherTree.MatchMap, _Mapping]] = ...) -> None: ...
    MATCHER_TREE_FIELD_NUMBER: _ClassVar[int]
    ON_NO_MATCH_FIELD_NUMBER: _ClassVar[int]
    matcher_tree: Matcher.MatcherTree
    on_no_match: Matcher.OnMatch
    def __init__(self, matcher_tree: _Optional[_Union[Matcher.MatcherTree, _Mapping]] = ..., on_no_match: _Optional[_Union[Matcher.OnMatch, _Mapping]] = ...) -> None: ...

class Cluster(_message.Message):
    __slots__ = ("name", "type", "eds_cluster_config", "connect_timeout", "per_connection_buffer_limit_bytes", "lb_policy", "circuit_breakers", "outlier_detection", "common_lb_config", "typed_extension_protocol_options")
    class DiscoveryType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATIC: _ClassVar[Cluster.DiscoveryType]
        EDS: _ClassVar[Cluster.DiscoveryType]
    STATIC: Cluster.DiscoveryType
    EDS: Cluster.DiscoveryType
    class LbPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROUND_ROBIN: _ClassVar[Cluster.LbPolicy]
        LEAST_REQUEST: _ClassVar[Cluster.LbPolicy]
    ROUND_ROBIN: Cluster.LbPolicy
    LEAST_REQUEST: Cluster.LbPolicy
    class EdsClusterConfig(_message.Message):
        __slots__ = ("eds_config",)
        EDS_CONFIG_FIELD_NUMBER: _ClassVar[int]
        eds_config: ConfigSource
        def __init__(self, eds_config: _Optional[_Union[ConfigSource, _Mapping]] = ...) -> None: ...
    class CommonLbConfig(_message.Message):
        __slots__ = ("healthy_panic_threshold",)
        HEALTHY_PANIC_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
        healthy_panic_threshold: Percent
        def __init__(self, healthy_panic_threshold: _Optional[_Union[Percent, _Mapping]] = ...) -> None: ...
    class TypedExtensionProtocolOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EDS_CLUSTER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    PER_CONNECTION_BUFFER_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    LB_POLICY_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_BREAKERS_FIELD_NUMBER: _ClassVar[int]
    OUTLIER_DETECTION_FIELD_NUMBER: _ClassVar[int]
    COMMON_LB_CONFIG_FIELD_NUMBER: _ClassVar[int]
    TYPED_EXTENSION_PROTOCOL_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: Cluster.DiscoveryType
    eds_cluster_config: Cluster.EdsClusterConfig
    connect_timeout: _duration_pb2.Duration
    per_connection_buffer_limit_bytes: _wrappers_pb2.UInt32Value
    lb_policy: Cluster.LbPolicy
    circuit_breakers: CircuitBreakers
    outlier_detection: OutlierDetection
    common_lb_config: Cluster.CommonLbConfig
    typed_extension_protocol_options: _containers.MessageMap[str, _any_pb2.Any]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Cluster.DiscoveryType, str]] = ..., eds_cluster_config: _Optional[_Union[Cluster.EdsClusterConfig, _Mapping]] = ..., connect_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., per_connection_buffer_limit_bytes: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., lb_policy: _Optional[_Union[Cluster.LbPolicy, str]] = ..., circuit_breakers: _Optional[_Union[CircuitBreakers, _Mapping]] = ..., outlier_detection: _Optional[_Union[OutlierDetection, _Mapping]] = ..., common_lb_config: _Optional[_Union[Cluster.CommonLbConfig, _Mapping]] = ..., typed_extension_protocol_options: _Optional[_Mapping[str, _any_pb2.Any]] = ...) -> None: ...

class CircuitBreakers(_message.Message):
    __slots__ = ("thresholds", "per_host_thresholds")
    class Thresholds(_message.Message):
        __slots__ = ("max_connections", "max_pending_requests", "max_requests", "retry_budget")
        class RetryBudget(_message.Message):
            __slots__ = ("budget_percent", "min_retry_concurrency")
            BUDGET_PERCENT_FIELD_NUMBER: _ClassVar[int]
            MIN_RETRY_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
            budget_percent: Percent
            min_retry_concurrency: _wrappers_pb2.UInt32Value
            def __init__(self, budget_percent: _Optional[_Union[Percent, _Mapping]] = ..., min_retry_concurrency: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ...) -> None: ...
        MAX_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
        MAX_PENDING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
        MAX_REQUESTS_FIELD_NUMBER: _ClassVar[int]
        RETRY_BUDGET_FIELD_NUMBER: _ClassVar[int]
        max_connections: _wrappers_pb2.UInt32Value
        max_pending_requests: _wrappers_pb2.UInt32Value
        max_requests: _wrappers_pb2.UInt32Value
        retry_budget: CircuitBreakers.Thresholds.RetryBudget
        def __init__(self, max_connections: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., max_pending_requests: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., max_requests: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., retry_budget: _Optional[_Union[CircuitBreakers.Thresholds.RetryBudget, _Mapping]] = ...) -> None: ...
    THRESHOLDS_FIELD_NUMBER: _ClassVar[int]
    PER_HOST_THRESHOLDS_FIELD_NUMBER: _ClassVar[int]
    thresholds: _containers.RepeatedCompositeFieldContainer[CircuitBreakers.Thresholds]
    per_host_thresholds: _containers.RepeatedCompositeFieldContainer[CircuitBreakers.Thresholds]
    def __init__(self, thresholds: _Optional[_Iterable[_Union[CircuitBreakers.Thresholds, _Mapping]]] = ..., per_host_thresholds: _Optional[_Iterable[_Union[CircuitBreakers.Thresholds, _Mapping]]] = ...) -> None: ...

class OutlierDetection(_message.Message):
    __slots__ = ("consecutive_5xx", "base_ejection_time", "max_ejection_percent", "enforcing_consecutive_5xx", "enforcing_success_rate", "consecutive_gateway_failure", "enforcing_consecutive_gateway_failure")
    CONSECUTIVE_5XX_FIELD_NUMBER: _ClassVar[int]
    BASE_EJECTION_TIME_FIELD_NUMBER: _ClassVar[int]
    MAX_EJECTION_PERCENT_FIELD_NUMBER: _ClassVar[int]
    ENFORCING_CONSECUTIVE_5XX_FIELD_NUMBER: _ClassVar[int]
    ENFORCING_SUCCESS_RATE_FIELD_NUMBER: _ClassVar[int]
    CONSECUTIVE_GATEWAY_FAILURE_FIELD_NUMBER: _ClassVar[int]
    ENFORCING_CONSECUTIVE_GATEWAY_FAILURE_FIELD_NUMBER: _ClassVar[int]
    consecutive_5xx: _wrappers_pb2.UInt32Value
    base_ejection_time: _duration_pb2.Duration
    max_ejection_percent: _wrappers_pb2.UInt32Value
    enforcing_consecutive_5xx: _wrappers_pb2.UInt32Value
    enforcing_success_rate: _wrappers_pb2.UInt32Value
    consecutive_gateway_failure: _wrappers_pb2.UInt32Value
    enforcing_consecutive_gateway_failure: _wrappers_pb2.UInt32Value
    def __init__(self, consecutive_5xx: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., base_ejection_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_ejection_percent: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., enforcing_consecutive_5xx: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., enforcing_success_rate: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., consecutive_gateway_failure: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ..., enforcing_consecutive_gateway_failure: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ...) -> None: ...

class ClusterLoadAssignment(_message.Message):
    __slots__ = ("cluster_name", "endpoints")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    endpoints: _containers.RepeatedCompositeFieldContainer[LocalityLbEndpoints]
    def __init__(self, cluster_name: _Optional[str] = ..., endpoints: _Optional[_Iterable[_Union[LocalityLbEndpoints, _Mapping]]] = ...) -> None: ...

class LocalityLbEndpoints(_message.Message):
    __slots__ = ("lb_endpoints", "priority")
    LB_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    lb_endpoints: _containers.RepeatedCompositeFieldContainer[LbEndpoint]
    priority: int
    def __init__(self, lb_endpoints: _Optional[_Iterable[_Union[LbEndpoint, _Mapping]]] = ..., priority: _Optional[int] = ...) -> None: ...

class LbEndpoint(_message.Message):
    __slots__ = ("endpoint",)
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    endpoint: Endpoint
    def __init__(self, endpoint: _Optional[_Union[Endpoint, _Mapping]] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: Address
    def __init__(self, address: _Optional[_Union[Address, _Mapping]] = ...) -> None: ...

class Runtime(_message.Message):
    __slots__ = ("name", "layer")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    name: str
    layer: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., layer: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
