"""Path patterns of the resources below `Microsoft.EventHub`; `{name}` stands for one segment."""

SUBSCRIPTION = "subscriptions/{subscription}/providers/Microsoft.EventHub"
RESOURCE_GROUP = "subscriptions/{subscription}/resourceGroups/{resourceGroup}/providers/Microsoft.EventHub"
NAMESPACE = RESOURCE_GROUP + "/namespaces/{namespace}"
HUB = NAMESPACE + "/eventhubs/{hub}"
ALIAS = NAMESPACE + "/disasterRecoveryConfigs/{alias}"
