package main

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// memoryCheckpoints keeps checkpoints and ownership of one hub and group in memory, with the optimistic
// concurrency that a store of blobs has.
type memoryCheckpoints struct {
	mutex       sync.Mutex
	owners      map[string]azeventhubs.Ownership
	checkpoints map[string]azeventhubs.Checkpoint
}

func newMemoryCheckpoints() *memoryCheckpoints {
	return &memoryCheckpoints{
		owners:      map[string]azeventhubs.Ownership{},
		checkpoints: map[string]azeventhubs.Checkpoint{},
	}
}

func (store *memoryCheckpoints) ClaimOwnership(
	_ context.Context, wanted []azeventhubs.Ownership, _ *azeventhubs.ClaimOwnershipOptions,
) ([]azeventhubs.Ownership, error) {
	store.mutex.Lock()
	defer store.mutex.Unlock()
	var claimed []azeventhubs.Ownership
	for _, one := range wanted {
		known, isKnown := store.owners[one.PartitionID]
		if isKnown && (one.ETag == nil || *one.ETag != *known.ETag) {
			continue
		}
		one.ETag = to.Ptr(azcore.ETag(rand.Text()))
		one.LastModifiedTime = time.Now()
		store.owners[one.PartitionID] = one
		claimed = append(claimed, one)
	}
	return claimed, nil
}

func (store *memoryCheckpoints) ListCheckpoints(
	_ context.Context, _, _, _ string, _ *azeventhubs.ListCheckpointsOptions,
) ([]azeventhubs.Checkpoint, error) {
	store.mutex.Lock()
	defer store.mutex.Unlock()
	var all []azeventhubs.Checkpoint
	for _, one := range store.checkpoints {
		all = append(all, one)
	}
	return all, nil
}

func (store *memoryCheckpoints) ListOwnership(
	_ context.Context, _, _, _ string, _ *azeventhubs.ListOwnershipOptions,
) ([]azeventhubs.Ownership, error) {
	store.mutex.Lock()
	defer store.mutex.Unlock()
	var all []azeventhubs.Ownership
	for _, one := range store.owners {
		all = append(all, one)
	}
	return all, nil
}

func (store *memoryCheckpoints) SetCheckpoint(
	_ context.Context, checkpoint azeventhubs.Checkpoint, _ *azeventhubs.SetCheckpointOptions,
) error {
	store.mutex.Lock()
	defer store.mutex.Unlock()
	store.checkpoints[checkpoint.PartitionID] = checkpoint
	return nil
}
