"""A Llama of random weights, with a byte-level tokenizer and without an end token, so that every answer has
the wanted number of tokens."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTEXT = 1024
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def write(folder: Path, *, width: int, layers: int) -> float:
    """Write the checkpoint; return its parameters in millions."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|pad|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<|pad|>")
    tokenizer.chat_template = _TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=width * 8 // 3,
            num_hidden_layers=layers,
            num_attention_heads=width // 32,
            num_key_value_heads=width // 64,
            max_position_embeddings=CONTEXT,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    # Bytes below 128 alone, as others are no text until their character is whole.
    with torch.no_grad():
        texts = [place for place, letter in enumerate(alphabet) if letter.isascii()]
        others = sorted(set(range(len(tokenizer))) - set(texts))
        model.lm_head.weight[others] = 0
        model.lm_head.weight[texts] += 0.2 * torch.randn(len(texts), width)
    model.generation_config = GenerationConfig(pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)
    return float(sum(weight.numel() for weight in model.parameters()) / 1e6)
