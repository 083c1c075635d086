// What tests have azidentity do: get a token from the node's own issuer, with environment variables only.
package main

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

var identities = map[string]operation{"roundTrip": with(roundTripWithIdentity)}

type signingIn struct {
	Kind    string `json:"kind"`
	Address string `json:"address"`
	Hub     string `json:"hub"`
	Body    string `json:"body"`
	CA      string `json:"ca"`
}

func credentialOf(kind string) (azcore.TokenCredential, error) {
	switch kind {
	case "default":
		return azidentity.NewDefaultAzureCredential(nil)
	case "environment":
		return azidentity.NewEnvironmentCredential(nil)
	case "managed":
		return azidentity.NewManagedIdentityCredential(nil)
	case "workload":
		return azidentity.NewWorkloadIdentityCredential(nil)
	case "cli":
		return azidentity.NewAzureCLICredential(nil)
	}
	return nil, fmt.Errorf("no credential %s", kind)
}

// roundTripWithIdentity publishes an event and reads it again, signed in by AMQP with a credential of the library.
func roundTripWithIdentity(ctx context.Context, given signingIn) (any, error) {
	credential, err := credentialOf(given.Kind)
	if err != nil {
		return nil, err
	}
	trusted, err := trust(given.CA)
	if err != nil {
		return nil, err
	}
	trusted.ServerName = "localhost"
	producer, err := azeventhubs.NewProducerClient(
		given.Address, given.Hub, credential, &azeventhubs.ProducerClientOptions{RetryOptions: quick, TLSConfig: trusted})
	if err != nil {
		return nil, err
	}
	defer end(producer)
	sent := sending{Events: []event{{Body: given.Body}}, Partition: to.Ptr("0")}
	if _, err := send(ctx, producer, sent); err != nil {
		return nil, err
	}
	consumer, err := azeventhubs.NewConsumerClient(
		given.Address, given.Hub, azeventhubs.DefaultConsumerGroup, credential,
		&azeventhubs.ConsumerClientOptions{RetryOptions: quick, TLSConfig: trusted})
	if err != nil {
		return nil, err
	}
	defer end(consumer)
	seen, err := readUntil(ctx, consumer, given.Body)
	return map[string]any{"seen": seen}, err
}

// readUntil reads partition 0 from its beginning until an event has this body.
func readUntil(ctx context.Context, consumer *azeventhubs.ConsumerClient, body string) ([]string, error) {
	from := azeventhubs.StartPosition{Earliest: to.Ptr(true)}
	partition, err := consumer.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{StartPosition: from})
	if err != nil {
		return nil, err
	}
	defer end(partition)
	var seen []string
	for {
		events, err := partition.ReceiveEvents(ctx, 1, nil)
		if err != nil {
			return seen, err
		}
		for _, one := range events {
			seen = append(seen, string(one.Body))
			if string(one.Body) == body {
				return seen, nil
			}
		}
	}
}
