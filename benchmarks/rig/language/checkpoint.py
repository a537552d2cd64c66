"""A Llama of random weights, with a byte-level tokenizer and without an end token, so that every answer has
the wanted number of tokens."""

from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import GenerationConfig, LlamaForCausalLM

from serving.runtimes.transformers import llama

CONTEXT = 1024


def write(folder: Path, *, width: int, layers: int, head: int | None = None, device: str = "cpu") -> float:
    """Write the checkpoint; return its parameters in millions.

    Args:
        folder: an empty one.
        width: of the hidden states.
        layers: their number.
        head: width of a head of attention, and two heads of queries for each of keys; as `llama.config` by
            default.
        device: for a GPU, weights have half precision (bfloat16), as those of most models.
    """
    tokenizer = llama.for_chats(llama.byte_level())
    torch.manual_seed(0)
    heads = (
        {}
        if head is None
        else {"num_attention_heads": width // head, "num_key_value_heads": width // head // 2}
    )
    config = llama.config(
        tokenizer, width=width, layers=layers, context=CONTEXT, bos_token_id=None, eos_token_id=None, **heads
    )
    with torch.device(device):
        model = LlamaForCausalLM(config)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # Bytes below 128 alone, as others are no text until their character is whole.
    with torch.no_grad():
        texts = [place for place, letter in enumerate(alphabet) if letter.isascii()]
        others = sorted(set(range(len(tokenizer))) - set(texts))
        model.lm_head.weight[others] = 0
        model.lm_head.weight[texts] += 0.2 * torch.randn(len(texts), width, device=device)
    if device != "cpu":
        model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)
    return float(sum(weight.numel() for weight in model.parameters()) / 1e6)
