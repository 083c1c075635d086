// Publishes three events to a partition with azeventhubs over TLS and reads that partition from its beginning.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

const partition = "0"

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	connection, hub := os.Getenv("EVENTHUB_TLS_CONNECTION_STRING"), os.Getenv("EVENTHUB_NAME")

	// The node's own authority. The SDK takes a port in the endpoint for a part of the name that the
	// certificate has to show: ServerName is the name without it.
	authority, err := os.ReadFile(os.Getenv("HUBMERE_CA_FILE"))
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	trusted := &tls.Config{RootCAs: pool, ServerName: "localhost"}

	producer, err := azeventhubs.NewProducerClientFromConnectionString(
		connection, hub, &azeventhubs.ProducerClientOptions{TLSConfig: trusted})
	check(err)
	defer producer.Close(ctx)
	batch, err := producer.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(partition)})
	check(err)
	for number := range 3 {
		check(batch.AddEventData(&azeventhubs.EventData{Body: fmt.Appendf(nil, "go %d", number)}, nil))
	}
	check(producer.SendEventDataBatch(ctx, batch, nil))

	consumer, err := azeventhubs.NewConsumerClientFromConnectionString(
		connection, hub, azeventhubs.DefaultConsumerGroup, &azeventhubs.ConsumerClientOptions{TLSConfig: trusted})
	check(err)
	defer consumer.Close(ctx)
	reader, err := consumer.NewPartitionClient(partition, &azeventhubs.PartitionClientOptions{
		StartPosition: azeventhubs.StartPosition{Earliest: to.Ptr(true)},
	})
	check(err)
	defer reader.Close(ctx)
	events, err := reader.ReceiveEvents(ctx, 3, nil)
	check(err)
	for _, event := range events {
		fmt.Printf("%d: %s\n", event.SequenceNumber, event.Body)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
