// What tests have azeventhubs/checkpoints do with the node's own storage account.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

type blobProcessing struct {
	Place     place  `json:"place"`
	Storage   string `json:"storage"`
	Container string `json:"container"`
	Count     int    `json:"count"`
}

// processWithBlobs processes events from the checkpoints of a container until `count` of them are seen.
func processWithBlobs(ctx context.Context, given blobProcessing) (any, error) {
	blobs, err := container.NewClientFromConnectionString(given.Storage, given.Container, nil)
	if err != nil {
		return nil, err
	}
	if _, err := blobs.Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return nil, err
	}
	store, err := checkpoints.NewBlobStore(blobs, nil)
	if err != nil {
		return nil, err
	}
	consumer, err := given.Place.consumer("")
	if err != nil {
		return nil, err
	}
	defer end(consumer)
	processor, err := azeventhubs.NewProcessor(consumer, store, &azeventhubs.ProcessorOptions{
		UpdateInterval: time.Second,
		StartPositions: azeventhubs.StartPositions{Default: azeventhubs.StartPosition{Earliest: to.Ptr(true)}},
	})
	if err != nil {
		return nil, err
	}
	seen, err := collect(ctx, processor, given.Count)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for pages := blobs.NewListBlobsFlatPager(nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Segment.BlobItems {
			names = append(names, *item.Name)
		}
	}
	return map[string]any{"seen": seen, "names": names}, nil
}

// collect runs a processor until it has seen some events; each is checkpointed.
func collect(ctx context.Context, processor *azeventhubs.Processor, count int) ([]string, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var mutex sync.Mutex
	var seen []string
	var workers sync.WaitGroup
	workers.Go(func() {
		for partition := processor.NextPartitionClient(running); partition != nil; partition = processor.NextPartitionClient(running) {
			workers.Go(func() {
				defer end(partition)
				for {
					events, err := partition.ReceiveEvents(running, 1, nil)
					if err != nil {
						return
					}
					mutex.Lock()
					for _, one := range events {
						seen = append(seen, string(one.Body))
						if partition.UpdateCheckpoint(running, one, nil) != nil {
							break
						}
					}
					isDone := len(seen) >= count
					mutex.Unlock()
					if isDone {
						stop()
					}
				}
			})
		}
	})
	err := processor.Run(running)
	workers.Wait()
	return seen, err
}
